// Package supervise owns every child: it starts them, is the only one to wait
// for them, finds the descendants of a command and ends them.
//
// There is one reaper for the whole process. It looks at the next dead child
// without collecting it (waitid with WNOWAIT), and only then, under the lock
// that excludes half-done starts, collects that pid. So the exit status of a
// command can neither be taken by the collection of orphans nor arrive before
// the command is registered. No pidfd is needed (gVisor has none), and an
// agent that is not PID 1 becomes a subreaper, so that orphans come to it all
// the same.
package supervise

import (
	"context"
	"sync"
	"syscall"
	"unsafe"
)

const (
	waitAll    = 0         // P_ALL
	waitExited = 0x4       // WEXITED
	waitNoWait = 0x1000000 // WNOWAIT
	setReaper  = 36        // PR_SET_CHILD_SUBREAPER
	sigInfoLen = 128       // sizeof(siginfo_t)
	sigInfoPid = 16        // offset of si_pid on 64-bit Linux
)

// Exit is how a child ended.
type Exit struct{ Status syscall.WaitStatus }

// Reaper collects children. Make one per process with NewReaper.
type Reaper struct {
	starting sync.RWMutex // held for reading from fork to registration

	mu      sync.Mutex
	waiting map[int]chan Exit

	wake chan struct{}
	done chan struct{}
}

// NewReaper begins to collect. It runs until ctx ends and the next child dies
// or is started; a process has one for its whole life.
func NewReaper(ctx context.Context) *Reaper {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setReaper, 1, 0)
	leaveAlone(syscall.SIGCHLD)
	r := &Reaper{waiting: map[int]chan Exit{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go r.run(ctx)
	return r
}

// Child is a program that was started.
type Child struct {
	PID   int
	Group int         // the process group that it begins in, and the session
	Exit  <-chan Exit // gets exactly one
}

// Start forks and executes.
func (r *Reaper) Start(c *Command) (Child, error) {
	r.starting.RLock()
	pid, group, err := c.beget()
	if err != nil {
		r.starting.RUnlock()
		return Child{}, err
	}
	exit := make(chan Exit, 1)
	r.mu.Lock()
	r.waiting[pid] = exit
	r.mu.Unlock()
	r.starting.RUnlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return Child{PID: pid, Group: group, Exit: exit}, nil
}

// leaveAlone takes Go's handler from a signal that has no effect by itself. A
// child's end would make some thread stop what it does, for nothing: the
// reaper waits for it in waitid.
func leaveAlone(sig syscall.Signal) {
	var usual [4]uint64 // the kernel's struct sigaction with SIG_DFL
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&usual)), 0, setSize, 0, 0)
}

func (r *Reaper) run(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		pid, errno := peek()
		switch {
		case errno == syscall.EINTR:
		case errno != 0: // ECHILD: nothing to wait for until the next start
			select {
			case <-r.wake:
			case <-ctx.Done():
			}
		default:
			r.collect(pid)
		}
	}
}

func peek() (int, syscall.Errno) {
	var info [sigInfoLen]byte
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0,
		uintptr(unsafe.Pointer(&info)), waitExited|waitNoWait, 0, 0)
	return int(*(*int32)(unsafe.Pointer(&info[sigInfoPid]))), errno
}

func (r *Reaper) collect(pid int) {
	r.starting.Lock()
	r.mu.Lock()
	defer r.starting.Unlock()
	defer r.mu.Unlock()
	var status syscall.WaitStatus
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	if err != nil || got != pid {
		return
	}
	if exit, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		exit <- Exit{Status: status}
	}
}
