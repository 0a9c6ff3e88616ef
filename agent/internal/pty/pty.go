// Package pty opens pseudo terminals with nothing but /dev/ptmx.
package pty

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Size of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

type winsize struct{ rows, cols, x, y uint16 }

// Open returns the master, ready for the poller, and the slave as a raw
// descriptor for the child, which the caller closes.
func Open(size Size, uid, gid uint32) (master *os.File, slave int, err error) {
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		fd, err = syscall.Open("/dev/pts/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, -1, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	slave, err = openSlave(fd, size, uid, gid)
	if err != nil {
		_ = syscall.Close(fd)
		return nil, -1, err
	}
	_ = syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "/dev/ptmx"), slave, nil
}

func openSlave(master int, size Size, uid, gid uint32) (int, error) {
	var unlock, number int32
	if err := ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)); err != nil {
		return -1, fmt.Errorf("unlock the terminal: %w", err)
	}
	if err := ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		return -1, fmt.Errorf("number of the terminal: %w", err)
	}
	ws := winsize{rows: size.Rows, cols: size.Cols}
	_ = ioctl(master, syscall.TIOCSWINSZ, unsafe.Pointer(&ws))
	name := "/dev/pts/" + strconv.Itoa(int(number))
	slave, err := syscall.Open(name, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	_ = syscall.Fchown(slave, int(uid), int(gid))
	_ = syscall.Fchmod(slave, 0o620)
	return slave, nil
}

// Resize sets the size; the foreground group gets SIGWINCH.
func Resize(master *os.File, size Size) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	ws := winsize{rows: size.Rows, cols: size.Cols}
	var ioErr error
	err = raw.Control(func(fd uintptr) {
		ioErr = ioctl(int(fd), syscall.TIOCSWINSZ, unsafe.Pointer(&ws))
	})
	if err != nil {
		return err
	}
	return ioErr
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
