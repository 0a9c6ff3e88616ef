package supervise

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

const (
	capSysResource = 24 // CAP_SYS_RESOURCE
	capBoundDrop   = 24 // PR_CAPBSET_DROP
	spawners       = 2
)

// spawner forks on threads of their own that have given up CAP_SYS_RESOURCE in
// their bounding set. The agent needs that capability (gVisor asks for it
// before one process may limit another), and a child that kept it would be
// free of every limit, root's children under gVisor above all. The bounding
// set belongs to a thread and is inherited by fork and exec, so nothing has to
// run between them.
type spawner struct{ work chan job }

type job struct {
	path string
	argv []string
	attr *syscall.ProcAttr
	done chan<- started
}

type started struct {
	pid int
	err error
}

// newSpawner returns nil when the agent lacks the capability, and then a plain
// fork is as good.
func newSpawner(ctx context.Context) *spawner {
	if os.Getuid() != 0 || !holdsCapability(capSysResource) {
		return nil
	}
	s := &spawner{work: make(chan job)}
	for range spawners {
		go s.run(ctx)
	}
	return s
}

func (s *spawner) run(ctx context.Context) {
	runtime.LockOSThread() // never unlocked: the thread is not as others are
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, capBoundDrop, capSysResource, 0)
	for {
		select {
		case j := <-s.work:
			pid, err := syscall.ForkExec(j.path, j.argv, j.attr)
			j.done <- started{pid, err}
		case <-ctx.Done():
			return
		}
	}
}

func (s *spawner) fork(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if s == nil {
		return syscall.ForkExec(path, argv, attr)
	}
	done := make(chan started, 1)
	s.work <- job{path, argv, attr, done}
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
