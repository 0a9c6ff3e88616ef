package process

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/pty"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/supervise"
	"tupper.dev/agent/internal/user"
)

// spec is a command ready to be started.
type spec struct {
	config  Config
	tag     string
	account *user.Account
	stdin   bool
	term    *pty.Size

	// sub is set by a start: the subscription that sees everything, because it
	// is older than the first byte of output.
	sub *Subscriber
}

// start runs a command. If the sandbox is at its limit of processes the
// largest command is ended for it.
func (m *Manager) start(ctx context.Context, s *spec) (*Process, error) {
	select {
	case <-m.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.relieve(ctx, s.account.UID)
	p, err := m.tryStart(s)
	if errors.Is(err, syscall.EAGAIN) && m.makeRoom(ctx, s.account.UID) {
		p, err = m.tryStart(s)
	}
	if errors.Is(err, syscall.EAGAIN) {
		return nil, connect.Errorf(connect.FailedPrecondition,
			"cannot start process '%s': the sandbox is at its limit of processes", s.config.Cmd).
			With("tupper.LimitHit", map[string]string{"limit": "pids"})
	}
	if errors.Is(err, syscall.ENOMEM) {
		return nil, connect.Errorf(connect.FailedPrecondition,
			"cannot start process '%s': the sandbox is out of memory", s.config.Cmd).
			With("tupper.LimitHit", map[string]string{"limit": "memory"})
	}
	return p, err
}

func (m *Manager) tryStart(s *spec) (*Process, error) {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return nil, connect.Errorf(connect.Unavailable, "the sandbox is shutting down")
	}
	cwd, err := m.workdir(s)
	if err != nil {
		return nil, err
	}
	id := newID()
	env := m.environment(s, id)
	cmd, err := build(&s.config, env, s.account, cwd)
	if err != nil {
		return nil, err
	}
	defer cmd.close()
	files, err := openFiles(s)
	if err != nil {
		return nil, err
	}
	defer files.closeChild()
	child, err := m.reaper.Start(&supervise.Command{
		Path: cmd.path, Argv: cmd.argv, Env: flatten(env), Dir: cwd, Files: files.forChild(cmd),
		Umask: supervise.UsualUmask, Credential: credential(s.account), Terminal: s.term != nil,
		Apart: s.term == nil && becomesSetsid(cmd.argv),
	})
	if err != nil {
		files.closeOurs()
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			return nil, err
		}
		return nil, describeExec(s.config.Cmd, cmd.path, err)
	}
	m.shield.Expose(child.PID)
	m.guard.started()
	return m.adopt(s, child, id, files), nil
}

// adopt registers a started child.
func (m *Manager) adopt(s *spec, child supervise.Child, id string, files *stdio) *Process {
	p := &Process{
		PID: child.PID, Config: s.config, Tag: s.tag, out: newOutput(), done: make(chan struct{}),
		tree: supervise.Tree{Leader: child.PID, Group: child.Group, ID: id}, term: files.term, stdin: files.stdin,
	}
	s.sub, _ = p.out.subscribe(nil)
	var readers []*reader
	if files.term != nil {
		readers = append(readers, newReader(Pty, files.term, p.out, m.settings.Touch))
	} else {
		readers = append(readers, newReader(Stdout, files.stdout, p.out, m.settings.Touch),
			newReader(Stderr, files.stderr, p.out, m.settings.Touch))
	}
	m.add(p, readers, child.Exit)
	return p
}

// describeExec explains a failed execve of a file that does exist.
func describeExec(name, path string, err error) error {
	if errors.Is(err, syscall.ENOENT) && executable(path) == nil {
		return startFailure(name, 127, "its interpreter or loader does not exist")
	}
	if errors.Is(err, syscall.EACCES) && executable(path) == nil {
		return startFailure(name, 126, "permission denied for the program or for the working directory")
	}
	return describeStart(name, err)
}

func (m *Manager) workdir(s *spec) (string, error) {
	given := ""
	if s.config.Cwd != nil {
		given = *s.config.Cwd
	}
	cwd, err := m.settings.Path(s.account, given)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(cwd)
	switch {
	case err == nil && info.IsDir():
		return cwd, nil
	case given == "" && s.config.Cwd == nil:
		return "/", nil // a home that was never made must not stop everything
	case err == nil:
		return "", connect.Errorf(connect.InvalidArgument, "cwd '%s' is not a directory", settings.Escape(cwd))
	}
	return "", connect.Errorf(connect.InvalidArgument, "cwd '%s' does not exist", settings.Escape(cwd))
}

// environment builds the variables, later ones over earlier ones: account,
// sandbox, request.
func (m *Manager) environment(s *spec, id string) map[string]string {
	env := map[string]string{
		"PATH": settings.DefaultPath, "HOME": s.account.Home,
		"USER": s.account.Name, "LOGNAME": s.account.Name,
	}
	if s.account.Shell != "" {
		// As every login does; and bash, which wants to know, need not look it up.
		env["SHELL"] = s.account.Shell
	}
	if s.term != nil {
		env["TERM"] = "xterm-256color"
	}
	global := m.settings.Env()
	for _, own := range []string{"HOME", "USER", "LOGNAME"} {
		delete(global, own)
	}
	maps.Copy(env, global)
	maps.Copy(env, s.config.Envs)
	env[supervise.Marker] = id
	return env
}

func flatten(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		if k != "" && strings.IndexByte(k, '=') < 0 && strings.IndexByte(k, 0) < 0 && strings.IndexByte(v, 0) < 0 {
			list = append(list, k+"="+v)
		}
	}
	slices.Sort(list)
	return list
}

// counter finds "name value" in a /proc file of such lines.
func counter(data []byte, name string) int64 {
	i := bytes.Index(data, []byte(name))
	if i < 0 {
		return 0
	}
	line, _, _ := bytes.Cut(data[i+len(name):], []byte("\n"))
	v, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return v
}
