package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/supervise"
)

// keepEnded is how long an ended command can still be asked for its end.
const keepEnded = 30 * time.Second

// Manager knows all commands.
type Manager struct {
	settings *settings.Settings
	reaper   *supervise.Reaper
	shield   *supervise.Shield
	buffers  sync.Pool
	workers  sync.WaitGroup
	open     chan struct{} // closed when commands may start
	guard    *guard        // nil where the sandbox has no limit of memory

	mu      sync.Mutex
	live    map[int]*Process
	ended   map[int]*Process
	held    time.Time     // begin of the hold in force
	lost    time.Duration // in holds that are over
	oomSeen int64
	ownOOM  int64 // kills of our guard
	closed  bool
}

// NewManager makes a manager; Wait waits for its goroutines.
func NewManager(s *settings.Settings, reaper *supervise.Reaper, shield *supervise.Shield) *Manager {
	m := &Manager{
		settings: s, reaper: reaper, shield: shield,
		buffers: sync.Pool{New: func() any { return new([chunkSize]byte) }},
		live:    map[int]*Process{}, ended: map[int]*Process{}, oomSeen: oomKills(),
		open: make(chan struct{}),
	}
	if s.Limits.MemoryMiB > 0 {
		m.guard = newGuard(m, s.Limits.MemoryMiB)
	}
	return m
}

// Open lets commands start; until then a start waits. Call it once.
func (m *Manager) Open() { close(m.open) }

// Wait returns when all commands are over.
func (m *Manager) Wait() { m.workers.Wait() }

// Count is the number of living commands.
func (m *Manager) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.live)
}

// List returns the living commands.
func (m *Manager) List() []*Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Process, 0, len(m.live))
	for _, p := range m.live {
		list = append(list, p)
	}
	return list
}

// Hold makes all outputs keep everything (see output) until it is undone.
func (m *Manager) Hold(on bool) {
	m.mu.Lock()
	switch {
	case on && m.held.IsZero():
		m.held = time.Now()
	case !on && !m.held.IsZero():
		m.lost += time.Since(m.held)
		m.held = time.Time{}
	}
	m.mu.Unlock()
	for _, p := range m.List() {
		p.out.hold(on)
	}
}

// lostTime is the time spent in holds so far, the one in force included. What
// a sandbox was saved for counts too: its clock has gone on meanwhile.
func (m *Manager) lostTime() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held.IsZero() {
		return m.lost
	}
	return m.lost + time.Since(m.held)
}

// Refuse makes every further Start fail; the sandbox is going down.
func (m *Manager) Refuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// find returns a command, also one that ended within keepEnded if ended.
func (m *Manager) find(sel selector, ended bool) (*Process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tables := []map[int]*Process{m.live}
	if ended {
		tables = append(tables, m.ended)
	}
	for _, table := range tables {
		if p := table[int(sel.Pid)]; p != nil && sel.Tag == "" {
			return p, nil
		}
		for _, p := range table {
			if sel.Tag != "" && p.Tag == sel.Tag {
				return p, nil
			}
		}
	}
	if sel.Tag != "" {
		return nil, connect.Errorf(connect.NotFound, "process with tag %s not found", sel.Tag)
	}
	return nil, connect.Errorf(connect.NotFound, "process with pid %d not found", sel.Pid)
}

// add registers a new command and starts the goroutine that owns it.
func (m *Manager) add(p *Process, readers []*reader, exit <-chan supervise.Exit) {
	m.mu.Lock()
	m.live[p.PID] = p
	p.out.held = !m.held.IsZero()
	m.mu.Unlock()
	m.workers.Add(1)
	for _, r := range readers {
		m.workers.Add(1)
		go func() {
			defer m.workers.Done()
			r.run(&m.buffers)
		}()
	}
	go func() {
		defer m.workers.Done()
		m.own(p, readers, exit)
	}()
}

// own waits for the end of a command and publishes it.
func (m *Manager) own(p *Process, readers []*reader, exit <-chan supervise.Exit) {
	status := (<-exit).Status
	drained(readers)
	p.abandonInput()
	end := endOf(status, p.endReason())
	if end.Signal == int(syscall.SIGKILL) && end.Limit == "" && m.oomHappened() {
		end.Limit = "memory"
	}
	if end.Limit == "memory" || end.Limit == "pids" {
		m.settings.NoteLimit(end.Limit)
	}
	m.settings.Touch()
	m.mu.Lock()
	delete(m.live, p.PID)
	m.ended[p.PID] = p
	m.mu.Unlock()
	p.out.finish(end)
	close(p.done)
	time.AfterFunc(keepEnded, func() { m.forget(p) })
}

func (m *Manager) forget(p *Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended[p.PID] == p {
		delete(m.ended, p.PID)
	}
}

// endOf renders a wait status the way Go, and so envd, does.
func endOf(status syscall.WaitStatus, limit string) *End {
	if status.Exited() {
		code := status.ExitStatus()
		end := &End{ExitCode: code, Exited: true, Status: "exit status " + strconv.Itoa(code), Limit: limit}
		if code != 0 {
			end.Error = end.Status
		}
		return end
	}
	sig := status.Signal()
	text := "signal: " + sig.String()
	if status.CoreDump() {
		text += " (core dumped)"
	}
	return &End{ExitCode: -1, Status: text, Error: text, Signal: int(sig), Limit: limit}
}

// oomHappened says whether the kernel's OOM killer acted since last asked.
func (m *Manager) oomHappened() bool {
	now := oomKills()
	m.mu.Lock()
	defer m.mu.Unlock()
	now += m.ownOOM
	before := m.oomSeen
	m.oomSeen = now
	return now > before
}

// relieve ends the command with the most processes of a user if that user is
// so close to the limit that even a login shell could not fork. The table of
// processes is only read when the kernel's own count makes that possible.
//
// It must work at the time when all else fails, in a sandbox whose CPUs belong
// to a fork bomb and where each system call waits for its turn. So the first
// look is at sessions, which one read of the table shows; who carries which
// marker is only asked where no session stands out.
func (m *Manager) relieve(ctx context.Context, uid uint32) {
	limit := m.settings.Limits.Pids
	var info syscall.Sysinfo_t
	if limit <= reserve(limit) || syscall.Sysinfo(&info) != nil || int(info.Procs) < limit/2 {
		return
	}
	full := limit - reserve(limit)
	table := supervise.Table()
	session, threads := supervise.Biggest(table)
	if owner, ok := memberOwner(table, session); ok && owner == uid && threads > limit/2 {
		if threads >= full || supervise.ThreadsOf(table, uid) >= full {
			m.endTree(ctx, supervise.Tree{Group: session})
			return
		}
	}
	if supervise.ThreadsOf(table, uid) >= full {
		m.makeRoom(ctx, uid)
	}
}

// memberOwner is the user of some living process of a session.
func memberOwner(table []supervise.Proc, session int) (uid uint32, ok bool) {
	for _, p := range table {
		if p.Session == session {
			if uid, ok = supervise.Owner(p.PID); ok {
				return uid, true
			}
		}
	}
	return 0, false
}

// reserve is how close to a limit of processes is too close.
func reserve(limit int) int { return max(4, limit/16) }

// makeRoom ends the command, running or over, with the most processes of a
// user, because at the limit nothing else can be done in the sandbox. It says
// whether there was one worth it.
func (m *Manager) makeRoom(ctx context.Context, uid uint32) bool {
	m.settings.NoteLimit("pids")
	id, count, _ := supervise.Largest(uid)
	if count < worthEnding {
		return false
	}
	m.endTree(ctx, supervise.Tree{ID: id})
	return true
}

// evictBudget is how long a full table is fought: on busy CPUs the processes of
// a fork bomb take their time to end.
const evictBudget = 40 * time.Second

// worthEnding is the size from which a command is to blame for a full table.
const worthEnding = 8

// endTree ends a command that fills the table, known by its session or its id.
func (m *Manager) endTree(ctx context.Context, tree supervise.Tree) {
	m.settings.NoteLimit("pids")
	m.mu.Lock()
	known := make([]*Process, 0, len(m.live)+len(m.ended))
	for _, table := range []map[int]*Process{m.live, m.ended} {
		for _, p := range table {
			known = append(known, p)
		}
	}
	m.mu.Unlock()
	for _, p := range known {
		if p.tree.Leads(tree.Group) || tree.ID != "" && p.tree.ID == tree.ID {
			p.evict(ctx)
			return
		}
	}
	tree.KillWithin(ctx, evictBudget)
}

func newID() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

func oomKills() int64 {
	data, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	return counter(data, "oom_kill ")
}
