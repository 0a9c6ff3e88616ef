package boot

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"
)

// unread is more than 0 as long as the other end has not read all.
func unread(t *testing.T, fd int) int32 {
	var n int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		t.Fatal(errno)
	}
	return n
}

// An empty datagram reads like a port whose host has just gone.
func TestPortReadsOnAfterItsHostWasAway(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	host, guest := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
	defer host.Close()
	defer guest.Close()
	raw, err := guest.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	p := &port{file: guest, raw: raw}
	got := make(chan string)
	go func() {
		var b [64]byte
		n, err := p.Read(b[:])
		got <- string(b[:n])
		if err != nil {
			t.Error(err)
		}
	}()
	for _, said := range []string{"", "", "again"} {
		if err := syscall.Sendto(fds[0], []byte(said), 0, nil); err != nil {
			t.Fatal(err)
		}
		for unread(t, fds[0]) > 0 {
			runtime.Gosched()
		}
	}
	if text := <-got; text != "again" {
		t.Errorf("read %q", text)
	}
}
