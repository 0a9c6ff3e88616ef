package process

import (
	"bytes"
	"os"
	"syscall"
	"time"

	"tupper.dev/agent/internal/supervise"
)

// guard ends the largest process of a guest that runs out of memory.
//
// It is for kernels without an OOM killer of their own (gVisor): there the
// host would end the whole sandbox, or, worse, a part of gVisor without which
// the rest hangs. It looks at the free memory (one system call) as often as
// could make a difference, and only while there is somebody to take memory:
// an idle sandbox costs nothing.
type guard struct {
	manager *Manager
	wake    chan struct{}
	low     uint64 // free memory at which a process has to go; bytes
}

const (
	fillRate  = 2 << 30 // the fastest that a guest takes memory; bytes per second
	lowMiB    = 24      // the least free memory at which a process has to go
	slowLook  = time.Second
	quickLook = 4 * time.Millisecond
	shortRest = 20 * time.Millisecond // from a kill until its memory is free
)

// newGuard begins to look after the next start of a command. Its goroutine
// ends with the process.
func newGuard(m *Manager, limitMiB int) *guard {
	g := &guard{manager: m, wake: make(chan struct{}, 1), low: uint64(max(lowMiB, limitMiB/16)) << 20}
	go g.run()
	return g
}

// started tells that there is somebody to take memory.
func (g *guard) started() {
	if g == nil {
		return
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *guard) run() {
	for range g.wake {
		pause := quickLook
		for previous := uint64(0); ; {
			free, processes := freeMemory()
			if free < g.low && g.relieve() {
				pause = shortRest
			} else if pause = lookAgain(free, previous, pause); g.manager.Count() == 0 && processes <= ownThreads() {
				break
			}
			previous = free
			time.Sleep(pause)
		}
	}
}

// lookAgain is half the time in which the free memory could be gone; when
// nothing changes, twice as long as last time.
func lookAgain(free, previous uint64, last time.Duration) time.Duration {
	soonest := time.Duration(float64(free) / fillRate / 2 * float64(time.Second))
	if free == previous {
		soonest = max(soonest, 2*last)
	}
	if free < 4*lowMiB<<20 {
		soonest = min(soonest, 10*quickLook)
	}
	return min(slowLook, max(quickLook, soonest))
}

func freeMemory() (free uint64, processes int) {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return ^uint64(0), 0
	}
	return info.Freeram * uint64(max(info.Unit, 1)), int(info.Procs)
}

func ownThreads() int {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	return len(list)
}

// relieve ends the process with the most memory.
func (g *guard) relieve() bool {
	pid, resident := supervise.Hungriest()
	if pid == 0 || resident < g.low/4 {
		return false
	}
	g.manager.noteOOM()
	return syscall.Kill(pid, syscall.SIGKILL) == nil
}

// hasOOMKiller says whether this kernel has one that counts its work.
func hasOOMKiller() bool {
	data, err := os.ReadFile("/proc/vmstat")
	return err == nil && bytes.Contains(data, []byte("oom_kill "))
}

// noteOOM counts a kill for want of memory.
func (m *Manager) noteOOM() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ownOOM++
	m.settings.NoteLimit("memory")
}
