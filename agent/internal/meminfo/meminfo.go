// Package meminfo reads what the kernel says of its memory.
//
// It is read also when there is next to none left, so it takes a fixed amount.
package meminfo

import (
	"bytes"
	"os"
	"strconv"
)

// head holds the first lines, among which are all that are looked for.
// Source: fs/proc/meminfo.c; gVisor's has the same order.
const head = 512

// Info is what the kernel has. Unit: bytes.
type Info struct {
	Total     uint64
	Available uint64 // what could be given away without any swap
	Cached    uint64 // pages of files
}

// Read asks the kernel.
//
// It reports false where the kernel does not say what is available.
func Read() (Info, bool) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return Info{}, false
	}
	defer file.Close()
	var text [head]byte
	n, _ := file.Read(text[:])
	return parse(text[:n])
}

func parse(text []byte) (Info, bool) {
	var info Info
	var isKnown bool
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		name, rest, _ := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(rest)
		if len(fields) != 2 { // cut off
			continue
		}
		kib, err := strconv.ParseUint(string(fields[0]), 10, 64)
		if err != nil {
			continue
		}
		switch string(name) {
		case "MemTotal":
			info.Total = kib << 10
		case "MemAvailable":
			info.Available, isKnown = kib<<10, true
		case "Cached":
			info.Cached = kib << 10
		}
	}
	return info, isKnown
}
