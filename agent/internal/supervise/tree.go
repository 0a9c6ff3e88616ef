package supervise

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Marker is the variable in the environment of every command that its
// descendants inherit; it finds those that left the session and lost their
// parents.
const Marker = "TUPPER_COMMAND_ID"

// KillBudget is the longest Kill goes on: a caller's time limit may be late by
// this much.
const KillBudget = 8 * time.Second

// Tree names the processes of a command.
type Tree struct {
	Leader int    // the command's own pid; 0 = unknown
	Group  int    // the process group and session that it began in; 0 = unknown
	ID     string // value of Marker
}

// Leads says whether a session or group is one of the tree's: the one it began
// in, or one that its leader made.
func (t Tree) Leads(group int) bool {
	return group > 1 && (group == t.Group || group == t.Leader)
}

// Signal sends a signal to the group that the command began in and to its
// leader, wherever that has gone; if it leads a group of its own, to all of
// that. A command that is over is no error.
func (t Tree) Signal(sig syscall.Signal) error {
	var targets []int
	if t.Group > 1 {
		targets = append(targets, -t.Group)
	}
	switch group, err := syscall.Getpgid(t.Leader); {
	case t.Leader <= 1 || err != nil || group == t.Group:
	case group == t.Leader:
		targets = append(targets, -group)
	default:
		targets = append(targets, t.Leader)
	}
	for _, target := range targets {
		if err := syscall.Kill(target, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Members lists the living processes of a tree: everything in its
// sessions and groups, everything that carries the marker, and all descendants of
// any of these.
func (t Tree) Members() []int {
	return t.among(Table())
}

func (t Tree) among(table []Proc) []int {
	self := os.Getpid()
	in := make(map[int]bool, 16)
	mark := []byte(Marker + "=" + t.ID)
	for _, p := range table {
		if p.PID == self || p.PID == 1 {
			continue
		}
		near := p.PID == t.Leader || t.Leads(p.Session) || t.Leads(p.Group)
		if near || (!p.dead() && t.ID != "" && carries(p.PID, mark)) {
			in[p.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range table {
			if !in[p.PID] && in[p.PPID] && p.PID != self && p.PID != 1 {
				in[p.PID], grown = true, true
			}
		}
	}
	var living []int
	for _, p := range table {
		if in[p.PID] && !p.dead() {
			living = append(living, p.PID)
		}
	}
	return living
}

func carries(pid int, mark []byte) bool {
	env := Environ(pid)
	i := bytes.Index(env, mark)
	return i >= 0 && (i == 0 || env[i-1] == 0) && (i+len(mark) == len(env) || env[i+len(mark)] == 0)
}

// Kill sends SIGKILL to every process of the tree until a look at the process
// table finds none. From the third round on it stops them all first, which
// ends fork bombs. It reports whether the tree is gone.
func (t Tree) Kill(ctx context.Context) bool { return t.KillWithin(ctx, KillBudget) }

// KillWithin is Kill with another budget.
func (t Tree) KillWithin(ctx context.Context, budget time.Duration) bool {
	if t.Group > 1 {
		killGroup(t.Group)
	}
	stop := time.Now().Add(budget)
	known := map[int]bool{}
	for round := 0; ; round++ {
		table := Table()
		members := t.among(table)
		if len(members) == 0 {
			return true
		}
		if time.Now().After(stop) || ctx.Err() != nil {
			return false
		}
		fresh := false
		if round >= 2 {
			signalAll(members, syscall.SIGSTOP)
		}
		for _, pid := range members {
			fresh = fresh || !known[pid]
			known[pid] = true
		}
		signalGroups(table, members)
		signalAll(members, syscall.SIGKILL)
		if !fresh {
			time.Sleep(time.Duration(min(round, 20)) * time.Millisecond)
		}
	}
}

// killGroup kills a process group again and again until it is gone, without a
// look at the process table in between: one call reaches all, but where it is
// not atomic (gVisor) a fork bomb's newest children escape it, and a look at
// the table of a full sandbox takes a second.
func killGroup(group int) {
	for range groupRounds {
		if syscall.Kill(-group, syscall.SIGKILL) != nil {
			return
		}
		runtime.Gosched()
	}
}

// groupRounds bounds killGroup: dead members that nobody has collected still
// count as the group.
const groupRounds = 50

// signalGroups kills the process groups of the members first: that is one
// step for the kernel, and a fork bomb cannot outrun it.
func signalGroups(table []Proc, members []int) {
	in, done := make(map[int]bool, len(members)), map[int]bool{0: true, 1: true, syscall.Getpgrp(): true}
	for _, pid := range members {
		in[pid] = true
	}
	for _, p := range table {
		if in[p.PID] && !done[p.Group] {
			done[p.Group] = true
			killGroup(p.Group)
		}
	}
}

func signalAll(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// Others lists all living processes but PID 1, this one and its ancestors, the
// kernel's own threads, and what the host started by itself, which alone has no
// parent in here. It is what an ordered shutdown of the whole sandbox ends.
func Others() []int { return others(Table(), os.Getpid()) }

func others(table []Proc, self int) []int {
	parent := make(map[int]int, len(table))
	for _, p := range table {
		parent[p.PID] = p.PPID
	}
	spare := map[int]bool{1: true}
	for pid := self; pid > 1 && !spare[pid]; pid = parent[pid] {
		spare[pid] = true
	}
	var list []int
	for _, p := range table {
		if !spare[p.PID] && !p.dead() && !p.Kernel && p.PPID != 0 {
			list = append(list, p.PID)
		}
	}
	return list
}

// Largest finds, among the processes of a user, the command id that most of
// them carry. total is how many processes the user has.
func Largest(uid uint32) (id string, count, total int) {
	counts := map[string]int{}
	for _, p := range Table() {
		var st syscall.Stat_t
		if p.dead() || syscall.Stat("/proc/"+strconv.Itoa(p.PID), &st) != nil || st.Uid != uid {
			continue
		}
		total++
		_, rest, ok := bytes.Cut(Environ(p.PID), []byte(Marker+"="))
		if value, _, _ := bytes.Cut(rest, []byte{0}); ok {
			counts[string(value)]++
		}
	}
	for have, n := range counts {
		if n > count {
			id, count = have, n
		}
	}
	return id, count, total
}
