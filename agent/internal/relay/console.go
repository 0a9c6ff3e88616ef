package relay

import (
	"bytes"
	"io"
	"os"
)

// consoleHalf is when the file of the console gives way to the next. The one
// before it is kept.
const consoleHalf = 32 << 10

// Console keeps the end of what a guest says on its serial line.
type Console struct {
	Line io.Reader
	Path string // the file; what was before it is in Path.1
}

// halts are what a kernel says last if the machine has no way to turn itself
// off.
//
// Source: Linux, kernel/reboot.c.
func halts() [][]byte {
	return [][]byte{[]byte("reboot: System halted"), []byte("reboot: Power down")}
}

// run writes down until the line ends; true if the guest has halted.
func (c *Console) run() (halted bool, err error) {
	file, err := os.OpenFile(c.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	size := int(info.Size())
	var buf [4096]byte
	var seen []byte // the end of what came before, for words that are cut in two
	for {
		n, err := c.Line.Read(buf[:])
		if n > 0 {
			if size += n; size > consoleHalf {
				if file, err = c.next(file); err != nil {
					return false, err
				}
				size = n
			}
			if _, err := file.Write(buf[:n]); err != nil {
				return false, err
			}
			seen = append(seen, buf[:n]...)
			for _, words := range halts() {
				if bytes.Contains(seen, words) {
					return true, nil
				}
			}
			seen = append([]byte{}, seen[max(0, len(seen)-64):]...)
		}
		if err != nil {
			return false, nil // the machine is gone
		}
	}
}

func (c *Console) next(full *os.File) (*os.File, error) {
	_ = full.Close()
	if err := os.Rename(c.Path, c.Path+".1"); err != nil {
		return full, err
	}
	return os.OpenFile(c.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}
