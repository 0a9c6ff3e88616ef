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

	mu      sync.Mutex
	live    map[int]*Process
	ended   map[int]*Process
	held    bool
	oomSeen int64
	closed  bool
}

// NewManager makes a manager; Wait waits for its goroutines.
func NewManager(s *settings.Settings, reaper *supervise.Reaper, shield *supervise.Shield) *Manager {
	return &Manager{
		settings: s, reaper: reaper, shield: shield,
		buffers: sync.Pool{New: func() any { return new([chunkSize]byte) }},
		live:    map[int]*Process{}, ended: map[int]*Process{}, oomSeen: oomKills(),
	}
}

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
	m.held = on
	m.mu.Unlock()
	for _, p := range m.List() {
		p.out.hold(on)
	}
}

// isHeld tells a connection closed by a hold from a client that went away.
func (m *Manager) isHeld() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
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
	p.out.held = m.held
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
	before := m.oomSeen
	m.oomSeen = now
	return now > before
}

// crowded says whether a user is at the limit of processes, so that even a
// login shell could not fork. The look at the process table is only taken when
// the kernel's own count makes it possible.
func (m *Manager) crowded(uid uint32) bool {
	limit := m.settings.Limits.Pids
	var info syscall.Sysinfo_t
	if limit <= reserve || syscall.Sysinfo(&info) != nil || int(info.Procs) < limit-reserve {
		return false
	}
	_, count, total := supervise.Largest(uid)
	return total >= limit-reserve && count > total/2
}

// reserve is how close to the limit of processes is too close.
const reserve = 4

// makeRoom ends the command, running or over, with the most processes of a
// user, because at the limit nothing else can be done in the sandbox. It says
// whether there was one worth it.
func (m *Manager) makeRoom(ctx context.Context, uid uint32) bool {
	m.settings.NoteLimit("pids")
	id, count, _ := supervise.Largest(uid)
	if count < 2*reserve {
		return false
	}
	for _, p := range m.List() {
		if p.tree.ID == id {
			p.Kill(ctx, "pids")
			return true
		}
	}
	supervise.Tree{ID: id}.Kill(ctx)
	return true
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
