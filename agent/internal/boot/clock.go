package boot

import (
	"syscall"
	"time"
)

// setClock leaves a clock alone that is right but for the way here.
func setClock(to time.Time) {
	if off := time.Until(to).Abs(); off < 20*time.Millisecond {
		return
	}
	tv := syscall.NsecToTimeval(to.UnixNano())
	_ = syscall.Settimeofday(&tv) // the machine's own clock is close
}
