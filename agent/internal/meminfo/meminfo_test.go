package meminfo

import "testing"

func TestWhatTheKernelSays(t *testing.T) {
	for text, want := range map[string]Info{
		"MemTotal:  468304 kB\nMemFree:  409096 kB\nMemAvailable:  412524 kB\nBuffers: 7 kB\nCached: 9 kB\nSwapCached: 3 kB\n": {468304 << 10, 412524 << 10, 9 << 10},
		"MemAvailable: 0 kB\nMemTotal: 4": {},
	} {
		if got, ok := parse([]byte(text)); got != want || !ok {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "MemTotal: 5 kB\n", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 12"} {
		if got, ok := parse([]byte(text)); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got, ok := Read(); !ok || got.Available == 0 || got.Total < got.Available || got.Cached == 0 {
		t.Errorf("this host: %+v, %v", got, ok)
	}
}
