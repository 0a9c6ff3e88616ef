package supervise

import (
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"
)

// Command is a program to start.
type Command struct {
	Path  string
	Argv  []string
	Env   []string
	Dir   string
	Files []uintptr // become its descriptors 0, 1, 2 …
	Umask int       // or UsualUmask

	// Credential is whom it runs as; nil for the agent's own user.
	Credential *syscall.Credential
	// Terminal says that descriptor 0 is a terminal for it to be in charge of.
	Terminal bool
	// Apart says that it leads neither its session nor its group; see beget.
	// It excludes Terminal.
	Apart bool
}

// IsSetsid says whether a program is setsid(1). It forks, and is over at once,
// where it leads a process group, so it is to be apart.
func IsSetsid(path string) bool { return filepath.Base(path) == "setsid" }

// UsualUmask is what children have unless something else is asked for.
const UsualUmask = -1

// step is a system call of a child that has not executed its program yet.
type step struct {
	number     uintptr
	a, b, c, d uintptr
	mayFail    uintptr // 0: the child ends when it fails
}

// order is what birth does. The assembly knows its layout.
type order struct {
	holder, holderEnd *step // nil: the child is born without a holder
	leader, leaderEnd *step
	errno             uintptr // of the step that failed, or of a clone
	begotten          int32   // the leader that the holder begot
	_                 int32

	keep   []any // what the steps point to
	copies []int // descriptors to close afterwards
}

// birth begets a child that shares our memory and lets this thread wait until
// it has executed its program or has ended (vfork), and has it take the steps.
// With a holder there are two: the holder takes its steps, begets the leader
// as a child of ours, and ends. It returns the first one's pid, or an errno
// below 0.
//
// It is in assembly because parent and children use one stack at a time that
// is not theirs: nothing may be written to it.
func birth(o *order) int

const (
	capSysResource = 24 // CAP_SYS_RESOURCE
	capBoundDrop   = 24 // PR_CAPBSET_DROP
	setSize        = 8  // sizeof(sigset_t) for the kernel
	setMask        = 2  // SIG_SETMASK
)

// beget starts a program. What differs from the agent in what it inherits:
//
//   - It has no CAP_SYS_RESOURCE in its bounding set. The agent needs that
//     capability to be free of the limit it sets for its children, and a child
//     that kept it would be free of every limit, too.
//   - Its nice value is 0, whatever the agent's is.
//   - No signal is ignored, and none is blocked.
//
// Go's own ForkExec would do these, on a thread of their own, and one more
// system call for each of some fifty signals.
//
// A command begins a session and a group, which it leads. One that is apart
// does not: they are led by a holder that has ended by now, whose number stays
// theirs, and is given to nobody else, while there is a process in them. So it
// may call setsid(2) itself.
func (c *Command) beget() (pid, group int, err error) {
	o, err := c.draw()
	defer o.close()
	if err != nil {
		return 0, 0, err
	}
	runtime.LockOSThread()
	syscall.ForkLock.Lock()
	begot := o.run()
	syscall.ForkLock.Unlock()
	runtime.UnlockOSThread()
	runtime.KeepAlive(o)
	switch {
	case begot < 0:
		return 0, 0, syscall.Errno(-begot)
	case o.errno != 0:
		return 0, 0, syscall.Errno(o.errno)
	case o.holder == nil:
		return begot, begot, nil
	case o.begotten == 0: // somebody killed the holder
		return 0, 0, syscall.EAGAIN
	}
	return int(o.begotten), begot, nil
}

// run has the child born with all signals blocked, so that no handler of ours
// runs in it, whose memory is ours.
func (o *order) run() int {
	all, old := ^uint64(0), uint64(0)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask,
		uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), setSize, 0, 0)
	begot := birth(o)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask,
		uintptr(unsafe.Pointer(&old)), 0, setSize, 0, 0)
	return begot
}

// draw makes the order for a command.
func (c *Command) draw() (*order, error) {
	o := new(order)
	session := []step{{number: syscall.SYS_SETSID}}
	var steps []step
	if c.Apart {
		o.holder, o.holderEnd = span(session)
	} else {
		steps = session
	}
	if c.Terminal {
		steps = append(steps, step{number: syscall.SYS_IOCTL, a: c.Files[0], b: syscall.TIOCSCTTY})
	}
	for i, fd := range c.Files {
		fd, err := o.above(fd, len(c.Files))
		if err != nil {
			return o, err
		}
		steps = append(steps, step{number: syscall.SYS_DUP3, a: fd, b: uintptr(i)})
	}
	steps = append(steps, inherited(c.Umask)...)
	steps = append(steps, o.become(c.Credential)...)
	last, err := o.execute(c)
	if err != nil {
		return o, err
	}
	steps = append(steps, last...)
	o.leader, o.leaderEnd = span(steps)
	return o, nil
}

// above is a descriptor, or a copy of it, that none of the first ones replaces.
func (o *order) above(fd uintptr, first int) (uintptr, error) {
	if fd >= uintptr(first) {
		return fd, nil
	}
	copied, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, uintptr(first))
	if errno != 0 {
		return 0, errno
	}
	o.copies = append(o.copies, int(copied))
	return copied, nil
}

func (o *order) close() {
	for _, fd := range o.copies {
		_ = syscall.Close(fd)
	}
}

// span is the first of the steps, and what comes after the last.
func span(steps []step) (begin, end *step) {
	steps = append(steps, step{})
	return &steps[0], &steps[len(steps)-1]
}

// inherited changes what a child would have from the agent.
func inherited(umask int) []step {
	steps := []step{
		{number: syscall.SYS_PRCTL, a: capBoundDrop, b: capSysResource, mayFail: 1},
		{number: syscall.SYS_SETPRIORITY, a: syscall.PRIO_PROCESS, mayFail: 1},
	}
	if umask != UsualUmask {
		steps = append(steps, step{number: syscall.SYS_UMASK, a: uintptr(umask)})
	}
	return steps
}

func (o *order) become(whom *syscall.Credential) []step {
	if whom == nil {
		return nil
	}
	groups := append([]uint32(nil), whom.Groups...)
	o.keep = append(o.keep, groups)
	first := uintptr(unsafe.Pointer(unsafe.SliceData(groups)))
	steps := []step{
		{number: syscall.SYS_SETGROUPS, a: uintptr(len(groups)), b: first},
		{number: syscall.SYS_SETGID, a: uintptr(whom.Gid)},
		{number: syscall.SYS_SETUID, a: uintptr(whom.Uid)},
	}
	if whom.NoSetGroups {
		return steps[1:]
	}
	return steps
}

// usual are the signals that get their usual effect before any is let through:
// those that the agent ignores, and those whose handlers would do more than
// nothing if somebody sent one to the child just then. Whatever else has a
// handler loses it when the program is executed.
var usual = [...]syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT,
	syscall.SIGBUS, syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGTERM,
	syscall.SIGSTKFLT, syscall.SIGSYS,
}

// execute is the end of the steps.
func (o *order) execute(c *Command) ([]step, error) {
	// The kernel's struct sigaction with SIG_DFL, and an empty set of signals.
	nothing := new([4]uint64)
	zero := uintptr(unsafe.Pointer(nothing))
	path, err := syscall.BytePtrFromString(c.Path)
	if err != nil {
		return nil, err
	}
	argv, err := syscall.SlicePtrFromStrings(c.Argv)
	if err != nil {
		return nil, err
	}
	env, err := syscall.SlicePtrFromStrings(c.Env)
	if err != nil {
		return nil, err
	}
	o.keep = append(o.keep, nothing, path, argv, env)
	var steps []step
	if c.Dir != "" {
		dir, err := syscall.BytePtrFromString(c.Dir)
		if err != nil {
			return nil, err
		}
		o.keep = append(o.keep, dir)
		steps = append(steps, step{number: syscall.SYS_CHDIR, a: uintptr(unsafe.Pointer(dir))})
	}
	for _, sig := range usual {
		steps = append(steps, step{number: syscall.SYS_RT_SIGACTION, a: uintptr(sig), b: zero, d: setSize})
	}
	return append(steps,
		step{number: syscall.SYS_RT_SIGPROCMASK, a: setMask, b: zero, d: setSize},
		step{number: syscall.SYS_EXECVE, a: uintptr(unsafe.Pointer(path)),
			b: uintptr(unsafe.Pointer(unsafe.SliceData(argv))), c: uintptr(unsafe.Pointer(unsafe.SliceData(env)))},
	), nil
}
