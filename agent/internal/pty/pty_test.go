package pty

import (
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

func TestTerminal(t *testing.T) {
	master, slave, err := Open(Size{Rows: 10, Cols: 20}, uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	size := func() (w winsize) {
		if err := ioctl(slave, syscall.TIOCGWINSZ, unsafe.Pointer(&w)); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := size(); w.rows != 10 || w.cols != 20 {
		t.Error(w)
	}
	if err := Resize(master, Size{Rows: 33, Cols: 44}); err != nil {
		t.Fatal(err)
	}
	if w := size(); w.rows != 33 || w.cols != 44 {
		t.Error(w)
	}
	if _, err := syscall.Write(slave, []byte("hi\n")); err != nil {
		t.Fatal(err)
	}
	_ = master.SetReadDeadline(time.Now().Add(10 * time.Second)) // it is in the poller
	buf := make([]byte, 16)
	n, err := master.Read(buf)
	if err != nil || string(buf[:n]) != "hi\r\n" {
		t.Errorf("%q %v", buf[:n], err)
	}
	_ = syscall.Close(slave)
	if _, err := master.Read(buf); err == nil {
		t.Error("no end when nobody has the other side")
	}
}
