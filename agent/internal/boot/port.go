package boot

import (
	"fmt"
	"os"
	"syscall"
)

// port is a virtio-serial port. While nobody is at the host's end its device
// says that it is at its end, and it goes on when somebody comes; both can be
// old news, since the kernel hears of them beside the bytes. A restored machine
// hears at once that its host has gone and that another is there.
//
// Source: Linux, drivers/char/virtio_console.c, port_fops_read, port_fops_poll,
// and control_work_handler against in_intr.
type port struct {
	file *os.File
	raw  syscall.RawConn
}

func openPort(events *events, name string) (*port, error) {
	device, err := events.until("port "+name, func() string { return named("/sys/class/virtio-ports", "name", name) })
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile("/dev/"+device, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return &port{file: file, raw: raw}, nil
}

// Read waits for bytes, also while nobody is there to send any.
func (p *port) Read(b []byte) (int, error) {
	var n int
	var failure error
	err := p.raw.Read(func(fd uintptr) bool {
		n, failure = syscall.Read(int(fd), b)
		nothing := failure == nil && n == 0 || failure == syscall.EAGAIN || failure == syscall.EINTR
		return !nothing
	})
	switch {
	case err != nil:
		return 0, err
	case failure != nil:
		return 0, fmt.Errorf("%s: %w", p.file.Name(), failure)
	}
	return n, nil
}

// Write waits until all is with the kernel.
func (p *port) Write(b []byte) (int, error) { return p.file.Write(b) }
