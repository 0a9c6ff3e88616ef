package process

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/pty"
)

// Routes returns the handlers by path.
func (m *Manager) Routes() map[string]httpd.HandlerFunc {
	const p = "/process.Process/"
	return map[string]httpd.HandlerFunc{
		p + "Start":       m.serveStart,
		p + "Connect":     m.serveConnect,
		p + "List":        connect.Unary(m.list),
		p + "Update":      connect.Unary(m.update),
		p + "SendInput":   connect.Unary(m.sendInput),
		p + "StreamInput": m.serveStreamInput,
		p + "SendSignal":  connect.Unary(m.sendSignal),
		p + "CloseStdin":  connect.Unary(m.closeStdin),
	}
}

func (m *Manager) list(context.Context, *httpd.Request, *struct{}) (any, error) {
	answer := struct {
		Processes []listed `json:"processes,omitempty"`
	}{}
	for _, p := range m.List() {
		answer.Processes = append(answer.Processes, listed{Config: p.Config, Pid: p.PID, Tag: p.Tag})
	}
	return answer, nil
}

func (m *Manager) update(_ context.Context, _ *httpd.Request, req *updateRequest) (any, error) {
	p, err := m.find(req.Process, false)
	if err != nil || req.Pty == nil {
		return nil, err
	}
	return nil, p.Resize(*req.Pty.size())
}

func (c *ptyConfig) size() *pty.Size {
	size := &pty.Size{Rows: 24, Cols: 80}
	if c.Size != nil {
		if c.Size.Rows > 0 {
			size.Rows = uint16(min(c.Size.Rows, 65535))
		}
		if c.Size.Cols > 0 {
			size.Cols = uint16(min(c.Size.Cols, 65535))
		}
	}
	return size
}

func (m *Manager) sendInput(ctx context.Context, _ *httpd.Request, req *inputRequest) (any, error) {
	p, err := m.find(req.Process, false)
	if err != nil {
		return nil, err
	}
	return nil, p.Write(ctx, req.Input)
}

func (m *Manager) closeStdin(_ context.Context, _ *httpd.Request, req *selectRequest) (any, error) {
	p, err := m.find(req.Process, false)
	if err != nil {
		return nil, err
	}
	return nil, p.CloseStdin()
}

func (m *Manager) sendSignal(ctx context.Context, _ *httpd.Request, req *signalRequest) (any, error) {
	p, err := m.find(req.Process, false)
	if err != nil {
		return nil, err
	}
	switch req.Signal {
	case "SIGNAL_SIGKILL", float64(9):
		p.Kill(ctx, "")
		p.settle(ctx)
		return nil, nil
	case "SIGNAL_SIGTERM", float64(15):
		if err := p.tree.Signal(syscall.SIGTERM); err != nil {
			return nil, connect.Errorf(connect.Internal, "signal process %d: %v", p.PID, err)
		}
		return nil, nil
	}
	text, _ := json.Marshal(req.Signal)
	return nil, connect.Errorf(connect.Unimplemented, "signal %s is not supported", text)
}

func (m *Manager) serveStreamInput(w httpd.ResponseWriter, r *httpd.Request) {
	ctx, cancel := connect.Deadline(r)
	defer cancel()
	stream := connect.NewStream(w)
	err := m.streamInput(ctx, r)
	if err == nil {
		err = stream.Send(struct{}{})
	}
	stream.End(err)
}

func (m *Manager) streamInput(ctx context.Context, r *httpd.Request) error {
	var p *Process
	for {
		var msg streamInputMessage
		err := connect.ReadMessage(r.Body, &msg)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if msg.Start != nil {
			if p, err = m.find(msg.Start.Process, false); err != nil {
				return err
			}
		}
		if msg.Data == nil {
			continue
		}
		if p == nil {
			return connect.Errorf(connect.InvalidArgument, "the first message must be start")
		}
		m.settings.Touch()
		if err := p.Write(ctx, msg.Data.Input); err != nil {
			return err
		}
	}
}
