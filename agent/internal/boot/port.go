package boot

import (
	"fmt"
	"os"
	"syscall"

	"tupper.dev/agent/internal/mux"
)

// port is a virtio-serial port. Its device says that it is at its end when the
// host has closed the other one, and goes on when that is opened again.
//
// Source: Linux, drivers/char/virtio_console.c, port_fops_read and port_fops_poll.
type port struct {
	file *os.File
	raw  syscall.RawConn
	hung bool // the last read found nobody there
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

// Read returns mux.ErrHangup once for every time that the host goes away.
func (p *port) Read(b []byte) (int, error) {
	var n int
	var failure error
	err := p.raw.Read(func(fd uintptr) bool {
		n, failure = syscall.Read(int(fd), b)
		switch {
		case failure == syscall.EAGAIN, failure == syscall.EINTR:
			return false
		case failure == nil && n == 0:
			was := p.hung
			p.hung = true
			return !was
		}
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case failure != nil:
		return 0, fmt.Errorf("%s: %w", p.file.Name(), failure)
	case n == 0:
		return 0, mux.ErrHangup
	}
	p.hung = false
	return n, nil
}

// Write waits until all is with the kernel.
func (p *port) Write(b []byte) (int, error) { return p.file.Write(b) }
