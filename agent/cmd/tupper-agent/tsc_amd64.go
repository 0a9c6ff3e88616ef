package main

import (
	"fmt"
	"time"
)

// ticks reads the time stamp counter.
func ticks() uint64

// tscSpan makes an error of a microsecond one of 5 in a million.
const tscSpan = 200 * time.Millisecond

// printTSC says how fast the time stamp counter of this machine runs (kHz). A
// guest that is emulated has the same one, but may fail to measure it while the
// host is busy.
func printTSC() error {
	began, from := reading()
	time.Sleep(tscSpan)
	ended, to := reading()
	fmt.Println(uint64(float64(to-from) / ended.Sub(began).Seconds() / 1e3))
	return nil
}

// reading takes both clocks as close together as it can.
func reading() (at time.Time, counter uint64) {
	best := time.Hour
	for range 100 {
		before := time.Now()
		now := ticks()
		if took := time.Since(before); took < best {
			best, at, counter = took, before.Add(took/2), now
		}
	}
	return at, counter
}
