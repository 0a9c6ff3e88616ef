package process

import (
	"bytes"
	"os"
	"syscall"
	"time"

	"tupper.dev/agent/internal/meminfo"
	"tupper.dev/agent/internal/supervise"
)

// guard ends the largest process of a guest that runs out of memory.
//
// A kernel without an OOM killer of its own (gVisor) would have the host end
// the whole sandbox, or, worse, a part of gVisor without which the rest hangs.
// Linux has one, but without swap it may first look for pages of files again
// and again, for minutes, in which nothing else runs. So the guard looks at the
// memory that is left as often as could make a difference, and only while there
// is somebody to take some: an idle sandbox costs nothing.
type guard struct {
	manager *Manager
	wake    chan struct{}
	low     uint64 // memory left at which a process has to go; bytes
	left    func() uint64
	crowd   func() bool // whether there are processes beside the agent
}

const (
	fillRate  = 2 << 30 // the fastest that a guest takes memory; bytes per second
	lowMiB    = 24      // the least memory left at which a process has to go
	linuxMiB  = 8       // the same where the kernel has an OOM killer
	slowLook  = time.Second
	quickLook = 4 * time.Millisecond
	shortRest = 20 * time.Millisecond // from a kill until its memory is free
)

// newGuard begins to look after the next start of a command. Its goroutine
// ends with the process.
func newGuard(m *Manager, limitMiB int) *guard {
	g := &guard{manager: m, wake: make(chan struct{}, 1)}
	if hasOOMKiller() {
		g.low = uint64(max(linuxMiB, limitMiB/64)) << 20
		g.left, g.crowd = availableMemory, func() bool { return len(supervise.Others()) > 0 }
	} else {
		g.low = uint64(max(lowMiB, limitMiB/16)) << 20
		g.left, g.crowd = freeMemory, moreThanOwnThreads
	}
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
			left := g.left()
			if left < g.low && g.relieve() {
				pause = shortRest
			} else if pause = lookAgain(left, previous, pause); g.manager.Count() == 0 && !g.crowd() {
				break
			}
			previous = left
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

func freeMemory() uint64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return ^uint64(0)
	}
	return info.Freeram * uint64(max(info.Unit, 1))
}

// availableMemory is what Linux could give away without any swap: unlike the
// free memory it holds the pages of files that can be dropped.
func availableMemory() uint64 {
	info, ok := meminfo.Read()
	if !ok {
		return ^uint64(0)
	}
	return info.Available
}

func moreThanOwnThreads() bool {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return false
	}
	list, err := os.ReadDir("/proc/self/task")
	return int(info.Procs) > len(list) || err != nil
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
