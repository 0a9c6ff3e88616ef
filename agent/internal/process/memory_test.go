package process

import (
	"testing"
	"time"
)

func TestTheGuardLooksInTime(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		free, previous uint64
		last           time.Duration
		least, most    time.Duration
	}{
		{0, 5 * mib, time.Second, quickLook, quickLook},
		{512 * mib, 500 * mib, quickLook, 100 * time.Millisecond, 150 * time.Millisecond},
		{8 << 30, 0, quickLook, slowLook, slowLook},
		{512 * mib, 512 * mib, 300 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond},
		{30 * mib, 30 * mib, time.Second, quickLook, 10 * quickLook}, // short: never slow, even if nothing moves
	} {
		if got := lookAgain(c.free, c.previous, c.last); got < c.least || got > c.most {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestWhatLinuxHasLeft(t *testing.T) {
	if left := availableMemory(); left == 0 || left == ^uint64(0) {
		t.Errorf("this host: %d", left)
	}
}
