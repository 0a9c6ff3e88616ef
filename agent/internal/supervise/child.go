package supervise

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

const rlimitNproc = 6 // RLIMIT_NPROC, the same on amd64 and arm64

// Shield makes the agent itself the last victim of memory shortage and gives
// it a better nice value than commands. What is not permitted is left undone.
type Shield struct {
	oom  bool
	nice bool
}

// NewShield protects the calling process.
func NewShield() *Shield {
	s := &Shield{oom: os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0) == nil}
	for _, tid := range threads() {
		if syscall.Setpriority(syscall.PRIO_PROCESS, tid, -5) == nil {
			s.nice = true
		}
	}
	return s
}

func threads() []int {
	entries, _ := os.ReadDir("/proc/self/task")
	var list []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, tid)
		}
	}
	return list
}

// Expose undoes for a new child what Shield did for the agent, and limits how
// many processes its user may have (0 = no limit). It runs right after the
// fork; on the few microseconds before that the child has the agent's values.
func (s *Shield) Expose(pid, pids int) {
	if pids > 0 {
		limit := syscall.Rlimit{Cur: uint64(pids), Max: uint64(pids)}
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), rlimitNproc,
			uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	}
	if s == nil {
		return
	}
	if s.nice {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, 0)
	}
	if s.oom {
		path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
		if fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0); err == nil {
			_, _ = syscall.Write(fd, []byte("0"))
			_ = syscall.Close(fd)
		}
	}
}

// CanLimit says whether Expose can limit children of other users.
func CanLimit() bool { return holdsCapability(capSysResource) }
