package boot

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"

	"tupper.dev/agent/internal/mux"
)

// News is what has changed for a machine that goes on after a restore.
type News struct {
	Network *Network `json:"network"` // nil for none
	Cold    bool     `json:"cold"`    // only the files count: what ran is to end
}

// goOn makes the function that a wake of the host calls. Without news (nil) the
// machine itself was saved and goes on.
func (s *System) goOn(wake func(*News)) func(mux.Told) {
	return func(got mux.Told) {
		if err := freshen(got); err != nil {
			s.say("incomplete: %v", err)
		}
		if len(got.Text) == 0 {
			wake(nil)
			return
		}
		news := new(News)
		if err := json.Unmarshal(got.Text, news); err != nil {
			s.say("incomplete: decode the news: %v", err)
			return // the hold's lease ends by itself
		}
		if err := news.apply(); err != nil {
			s.say("incomplete: %v", err)
		}
		wake(news)
	}
}

func (n *News) apply() error {
	if n.Cold {
		if err := newBoot(); err != nil {
			return err
		}
	}
	events, err := listenEvents()
	if err != nil {
		return err
	}
	defer events.close()
	if n.Network == nil {
		return nil
	}
	return n.Network.configure(events)
}

// newBoot makes the guest see another boot.
func newBoot() error {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return ShowBootID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// ShowBootID makes the guest see another boot: with all its processes gone, what
// they have left in files must be known to be stale.
func ShowBootID(id string) error {
	const shown, place = "/proc/sys/kernel/random/boot_id", "/.tupper"
	_ = syscall.Unmount(shown, 0) // of an earlier one
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(place+"/boot-id", []byte(id+"\n"), 0o444); err != nil {
		return err
	}
	return syscall.Mount(place+"/boot-id", shown, "", syscall.MS_BIND, "")
}

// probed says whether the kernel was only started to see that it does.
func probed() bool {
	line, _ := os.ReadFile("/proc/cmdline")
	for _, word := range strings.Fields(string(line)) {
		if word == "tupper.probe" {
			return true
		}
	}
	return false
}

func release() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}
