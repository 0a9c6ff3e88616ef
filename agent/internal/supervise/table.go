package supervise

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// Proc is one row of the process table.
type Proc struct {
	PID, PPID, Group, Session int
	Threads                   int
	State                     byte
	Kernel                    bool // a thread of the kernel's, which nobody can end
}

func (p Proc) dead() bool { return p.State == 'Z' || p.State == 'X' || p.State == 'x' }

// Table reads /proc. Processes that vanish meanwhile are left out.
func Table() []Proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	table := make([]Proc, 0, len(names))
	var buf [1024]byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		n := readInto("/proc/"+name+"/stat", buf[:])
		if row, ok := parseStat(pid, buf[:n]); ok {
			table = append(table, row)
		}
	}
	return table
}

// readInto reads the head of a file with three system calls and no os.File.
func readInto(path string, buf []byte) int {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, buf)
	if err != nil {
		return 0
	}
	return n
}

// kernelThread is PF_KTHREAD among a process's flags. Source: proc_pid_stat(5),
// field 9; linux/include/linux/sched.h. gVisor has no such threads and says 0.
const kernelThread = 0x00200000

// parseStat reads "pid (name) state ppid pgrp session …"; the name may hold
// spaces and brackets, so it ends at the last bracket.
func parseStat(pid int, line []byte) (Proc, bool) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return Proc{}, false
	}
	f := bytes.Fields(line[end+1:])
	if len(f) < 4 || len(f[0]) != 1 {
		return Proc{}, false
	}
	num := func(b []byte) int { v, _ := strconv.Atoi(string(b)); return v }
	row := Proc{PID: pid, State: f[0][0], PPID: num(f[1]), Group: num(f[2]), Session: num(f[3]), Threads: 1}
	if len(f) > 6 {
		flags, _ := strconv.ParseUint(string(f[6]), 10, 64)
		row.Kernel = flags&kernelThread != 0
	}
	if len(f) > 17 {
		row.Threads = max(1, num(f[17]))
	}
	return row, true
}

// Environ returns the start environment of a process, entries separated by
// NUL; nil if it cannot be read.
func Environ(pid int) []byte {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return data
}

// Biggest finds the session with the most threads, the unit in which the
// kernel counts against a limit of processes. Ours does not take part.
func Biggest(table []Proc) (session, threads int) {
	self := os.Getpid()
	counts := map[int]int{}
	for _, p := range table {
		if p.PID != self && p.PID != 1 && p.Session > 1 && !p.dead() {
			counts[p.Session] += p.Threads
		}
	}
	for have, n := range counts {
		if n > threads || n == threads && have > session {
			session, threads = have, n
		}
	}
	return session, threads
}

// Owner is the real user of a process.
func Owner(pid int) (uid uint32, ok bool) {
	var st syscall.Stat_t
	if syscall.Stat("/proc/"+strconv.Itoa(pid), &st) != nil {
		return 0, false
	}
	return st.Uid, true
}

// ThreadsOf counts the threads of all processes of a user, ours too.
func ThreadsOf(table []Proc, uid uint32) int {
	total := 0
	for _, p := range table {
		if have, ok := Owner(p.PID); ok && have == uid {
			total += p.Threads
		}
	}
	return total
}

// Hungriest is the process, ours and PID 1 excepted, with the most memory
// resident. Unit: bytes.
func Hungriest() (pid int, resident uint64) {
	self := os.Getpid()
	var buf [256]byte
	for _, p := range Table() {
		if p.PID == self || p.PID == 1 || p.dead() {
			continue
		}
		n := readInto("/proc/"+strconv.Itoa(p.PID)+"/statm", buf[:])
		fields := bytes.Fields(buf[:n])
		if len(fields) < 2 {
			continue
		}
		pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
		if size := pages * uint64(os.Getpagesize()); err == nil && size > resident {
			pid, resident = p.PID, size
		}
	}
	return pid, resident
}
