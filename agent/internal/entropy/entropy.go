// Package entropy gives the kernel's random numbers a new beginning.
package entropy

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// Source: random(4), include/uapi/linux/random.h; the same on amd64 and arm64.
const (
	addEntropy = 0x40085203 // RNDADDENTROPY
	reseed     = 0x5207     // RNDRESEEDCRNG
)

// Add makes all random numbers from now on depend on seed.
//
// Stirring the pool is not enough: Linux goes on for up to a minute with the
// key that it has, and copies of one saved machine have the same. So it is
// told to take a new one at once. A kernel that has no such key of its own
// (gVisor hands out the host's numbers), or an agent without privilege, only
// stirs.
func Add(seed []byte) error {
	pool, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	info := make([]byte, 8, 8+len(seed)) // struct rand_pool_info
	binary.NativeEndian.PutUint32(info, uint32(8*len(seed)))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(seed)))
	info = append(info, seed...)
	switch errno := ioctl(pool, addEntropy, uintptr(unsafe.Pointer(&info[0]))); errno {
	case 0:
	case syscall.ENOTTY, syscall.EPERM:
		_, err := pool.Write(seed)
		return err
	default:
		return fmt.Errorf("add entropy: %w", errno)
	}
	if errno := ioctl(pool, reseed, 0); errno != 0 {
		return fmt.Errorf("take a new key: %w", errno)
	}
	return nil
}

func ioctl(file *os.File, code, argument uintptr) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), code, argument)
	return errno
}
