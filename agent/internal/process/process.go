// Package process runs commands: process.Process of envd's protocol with the
// end rule of tupper. A command lives on its own; clients come and go as
// subscribers of its output.
//
// A command is over when its leader has exited and its pipes are at their end,
// or, if a child in the background still holds them, when everything the
// leader wrote has been read and nothing came for 100 ms.
package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/pty"
	"tupper.dev/agent/internal/supervise"
)

const (
	quietFor  = 100 * time.Millisecond
	settleFor = 2 * time.Second
	quietCap  = time.Second // for a background child that never is quiet
)

// Process is one command.
type Process struct {
	PID    int
	Config Config
	Tag    string

	tree   supervise.Tree
	out    *output
	term   *os.File // master of the terminal, or nil
	inputs sync.Mutex
	stdin  *os.File // nil when there is none
	done   chan struct{}

	mu    sync.Mutex
	limit string // why we ended it
}

// Done is closed after the end event.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the command and all its descendants; reason becomes the "limit" of
// the end event.
func (p *Process) Kill(ctx context.Context, reason string) {
	p.killWithin(ctx, reason, supervise.KillBudget)
}

// settle waits until a command that was killed is no longer listed; not for
// long, as its last output may have to wait for a slow reader.
func (p *Process) settle(ctx context.Context) {
	timer := time.NewTimer(settleFor)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// evict ends a command that fills the table of processes. It takes as long as
// that takes, for nothing can be started before.
func (p *Process) evict(ctx context.Context) { p.killWithin(ctx, "pids", evictBudget) }

func (p *Process) killWithin(ctx context.Context, reason string, budget time.Duration) {
	p.mu.Lock()
	if p.limit == "" {
		p.limit = reason
	}
	p.mu.Unlock()
	p.tree.KillWithin(ctx, budget)
}

func (p *Process) endReason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// Resize sets the terminal's size.
func (p *Process) Resize(size pty.Size) error {
	if p.term == nil {
		return connect.Errorf(connect.Internal, "process %d has no terminal", p.PID)
	}
	return pty.Resize(p.term, size)
}

// Write sends input to the command. It blocks while the command does not read,
// at most until ctx ends.
func (p *Process) Write(ctx context.Context, in input) error {
	p.inputs.Lock()
	defer p.inputs.Unlock()
	target, data := p.stdin, []byte(in.Stdin)
	switch {
	case in.Pty != nil && p.term == nil:
		return connect.Errorf(connect.Internal, "process %d has no terminal", p.PID)
	case in.Pty != nil:
		target, data = p.term, in.Pty
	case in.Stdin == nil:
		return nil
	case p.term != nil:
		return connect.Errorf(connect.Internal, "process %d has a terminal: send pty input", p.PID)
	case target == nil:
		return connect.Errorf(connect.Internal, "stdin of process %d is not open", p.PID)
	}
	_ = target.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = target.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := target.Write(data)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO), errors.Is(err, os.ErrClosed):
		return connect.Errorf(connect.Internal, "stdin of process %d is closed", p.PID)
	}
	return connect.Errorf(connect.Internal, "write to process %d: %v", p.PID, err)
}

// CloseStdin gives the command its end of file; repeating it is no error.
// It waits for input that is being written.
func (p *Process) CloseStdin() error {
	if p.term != nil {
		return connect.Errorf(connect.Unknown, "cannot close stdin for PTY process %d", p.PID)
	}
	p.inputs.Lock()
	defer p.inputs.Unlock()
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	return nil
}

// abandonInput closes stdin under a writer that may be blocked in it.
func (p *Process) abandonInput() {
	if p.term != nil {
		_ = p.term.SetWriteDeadline(time.Unix(1, 0))
	}
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
}
