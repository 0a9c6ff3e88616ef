package supervise

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

const (
	capSysResource = 24 // CAP_SYS_RESOURCE
	capBoundDrop   = 24 // PR_CAPBSET_DROP
)

// spawner forks on threads of their own, which differ from the agent's other
// threads in what a child inherits from its thread:
//
//   - They have given up CAP_SYS_RESOURCE in their bounding set. The agent
//     needs that capability to be free of the limit it sets for its children,
//     and a child that kept it would be free of every limit, too.
//   - Their nice value is 0, whatever the agent's is.
//   - Their umask is their own, so that a child can have another one.
//
// So nothing has to run between fork and exec.
//
// The second one begins when both are needed: a thread costs every sandbox's
// start a millisecond, and memory.
type spawner struct {
	ctx  context.Context
	work chan job
	more sync.Once
}

type job struct {
	path  string
	argv  []string
	attr  *syscall.ProcAttr
	umask int // -1: the usual one
	done  chan<- started
}

type started struct {
	pid int
	err error
}

func newSpawner(ctx context.Context) *spawner {
	s := &spawner{ctx: ctx, work: make(chan job)}
	go s.run(ctx)
	return s
}

func (s *spawner) run(ctx context.Context) {
	runtime.LockOSThread() // never unlocked: the thread is not as others are
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, capBoundDrop, capSysResource, 0)
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 0)
	ownUmask := syscall.Unshare(syscall.CLONE_FS) == nil
	for {
		select {
		case j := <-s.work:
			j.done <- j.run(ownUmask)
		case <-ctx.Done():
			return
		}
	}
}

func (j job) run(ownUmask bool) started {
	if ownUmask && j.umask >= 0 {
		defer syscall.Umask(syscall.Umask(j.umask))
	}
	pid, err := syscall.ForkExec(j.path, j.argv, j.attr)
	return started{pid, err}
}

func (s *spawner) fork(j job) (int, error) {
	done := make(chan started, 1)
	j.done = done
	select {
	case s.work <- j:
	default:
		s.more.Do(func() { go s.run(s.ctx) })
		s.work <- j
	}
	result := <-done
	return result.pid, result.err
}

// holdsCapability reads the effective set of this process.
func holdsCapability(number uint) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(status, []byte("CapEff:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	set, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	return ok && err == nil && set&(1<<number) != 0
}
