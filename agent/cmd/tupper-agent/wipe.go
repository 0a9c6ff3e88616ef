package main

import (
	"bytes"
	"os"
	"unsafe"
)

// wipe removes a variable from the environment and overwrites its text where
// the kernel put it, because /proc/PID/environ shows that memory to the guest.
//
// Go's runtime keeps the original strings of the environment in place, so the
// address is that of the value itself.
func wipe(name string) {
	value, ok := os.LookupEnv(name)
	if !ok {
		return
	}
	before, err := os.ReadFile("/proc/self/environ")
	if err == nil && bytes.Contains(before, []byte(name+"=")) && len(value) > 0 {
		text := unsafe.Slice(unsafe.StringData(value), len(value))
		for i := range text {
			text[i] = 'x'
		}
	}
	_ = os.Unsetenv(name)
}
