package supervise

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const rlimitNproc = 6 // RLIMIT_NPROC, the same on amd64 and arm64

// Shield makes the agent itself the last victim of memory shortage and gives
// it a better nice value than commands. What is not permitted is left undone.
type Shield struct{ oom bool }

// NewShield protects the calling process. Call it before NewReaper.
func NewShield() *Shield {
	s := &Shield{oom: adjustable() && adjust("-999")}
	for _, tid := range threads() {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -5)
	}
	return s
}

func adjust(value string) bool {
	return os.WriteFile("/proc/self/oom_score_adj", []byte(value), 0) == nil
}

// adjustable tries whether the adjustment has an effect. gVisor only stores
// it, and then undoing it for every child would be three calls for nothing.
func adjustable() bool {
	if !adjust("1000") {
		return false
	}
	score, err := os.ReadFile("/proc/self/oom_score")
	_ = adjust("0")
	return err == nil && strings.TrimSpace(string(score)) != "0"
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

// Expose undoes for a new child what Shield did for the agent and what a child
// inherits. It runs right after the fork; for the few microseconds before that
// the child has the agent's value. The nice value is not inherited, see
// Command.
func (s *Shield) Expose(pid int) {
	if s == nil || !s.oom {
		return
	}
	path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	if fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0); err == nil {
		_, _ = syscall.Write(fd, []byte("0"))
		_ = syscall.Close(fd)
	}
}

// LimitProcesses bounds how many processes each user may have, the agent not
// included. It says whether it could.
//
// The limit is set on the agent itself, whose capability frees it from it, and
// inherited by its children, who get no such capability: so there is no moment
// at which a child is without it.
func LimitProcesses(pids int) bool {
	if !holdsCapability(capSysResource) {
		return false
	}
	limit := syscall.Rlimit{Cur: uint64(pids), Max: uint64(pids)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, rlimitNproc, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return errno == 0
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
