package boot

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// setClock leaves a clock alone that is right but for the way here.
func setClock(to time.Time) {
	if off := time.Until(to).Abs(); off < 20*time.Millisecond {
		return
	}
	tv := syscall.NsecToTimeval(to.UnixNano())
	_ = syscall.Settimeofday(&tv) // the machine's own clock is close
}

// addEntropyCode is RNDADDENTROPY, the same on amd64 and arm64.
const addEntropyCode = 0x40085203

// addEntropy makes the kernel's random numbers good at once.
func addEntropy(seed []byte) error {
	pool, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	info := make([]byte, 8, 8+len(seed)) // struct rand_pool_info
	binary.NativeEndian.PutUint32(info, uint32(8*len(seed)))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(seed)))
	info = append(info, seed...)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, pool.Fd(), addEntropyCode, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	return nil
}
