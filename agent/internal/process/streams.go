package process

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
)

// serveStart answers process.Process/Start. The command is not tied to the
// connection unless the client says `Tupper-Cancel: kill`; a time limit of the
// call is a limit of the command.
func (m *Manager) serveStart(w httpd.ResponseWriter, r *httpd.Request) {
	stream := connect.NewStream(w)
	s, err := m.readStart(r)
	if err != nil {
		stream.End(err)
		return
	}
	p, err := m.start(r.Context(), s)
	if err != nil {
		stream.End(err)
		return
	}
	defer s.sub.Close()
	ctx := r.Context()
	var over <-chan struct{} // closed when the time limit has done its work
	if limit := connect.Timeout(r); limit > 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		over = m.limitTime(p, limit, func() { cancel(context.DeadlineExceeded) })
	}
	err = m.feed(ctx, stream, p, s.sub, [streamCount]int64{}, connect.Keepalive(r))
	if err != nil && r.Context().Err() != nil && r.Header.Get("Tupper-Cancel") == "kill" && !r.Cut() {
		p.Kill(context.WithoutCancel(ctx), "")
		return
	}
	if err != nil && over != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		<-over // the client shall find the whole tree gone
		<-p.done
		err = connect.Errorf(connect.DeadlineExceeded, "process %d reached its time limit", p.PID).
			With("tupper.LimitHit", map[string]string{"limit": "time"})
	}
	stream.End(err)
}

// limitTime ends a command after its time, whoever is connected by then; the
// time of holds does not count. It calls expired before, and closes the channel
// when the command and its tree are gone.
func (m *Manager) limitTime(p *Process, limit time.Duration, expired func()) <-chan struct{} {
	over := make(chan struct{})
	m.workers.Add(1)
	began, before := time.Now(), m.lostTime()
	go func() {
		defer m.workers.Done()
		defer close(over)
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-p.done:
				return
			}
			left := limit + m.lostTime() - before - time.Since(began)
			if left <= 0 {
				expired()
				p.Kill(context.Background(), "time")
				return
			}
			timer.Reset(max(left, time.Millisecond))
		}
	}()
	return over
}

func (m *Manager) readStart(r *httpd.Request) (*spec, error) {
	var req startRequest
	if err := connect.ReadOnly(r, &req); err != nil {
		return nil, err
	}
	if req.Process == nil || req.Process.Cmd == "" {
		return nil, connect.Errorf(connect.InvalidArgument, "the request names no command")
	}
	account, err := m.settings.RequestUser(r)
	if err != nil {
		return nil, err
	}
	s := &spec{config: *req.Process, account: account, stdin: req.Stdin == nil || *req.Stdin}
	if req.Tag != nil {
		s.tag = *req.Tag
	}
	if req.Pty != nil {
		s.term = req.Pty.size()
	}
	return s, nil
}

// serveConnect attaches a client to a running command, or to the end of one
// that is over since less than 30 s.
func (m *Manager) serveConnect(w httpd.ResponseWriter, r *httpd.Request) {
	stream := connect.NewStream(w)
	var req connectRequest
	if err := connect.ReadOnly(r, &req); err != nil {
		stream.End(err)
		return
	}
	p, err := m.find(req.Process, true)
	if err != nil {
		stream.End(err)
		return
	}
	ctx, cancel := connect.Deadline(r)
	defer cancel()
	sub, gaps := p.out.subscribe(req.Tupper)
	defer sub.Close()
	stream.End(m.feed(ctx, stream, p, sub, gaps, connect.Keepalive(r)))
}

// feed sends start, output and end of a command to one client.
func (m *Manager) feed(ctx context.Context, stream *connect.Stream, p *Process, sub *Subscriber, gaps [streamCount]int64, every time.Duration) error {
	if err := begin(stream, p.PID, gaps); err != nil {
		return err
	}
	keepalive := time.NewTimer(every)
	defer keepalive.Stop()
	buf := m.buffers.Get().(*[chunkSize]byte)
	defer m.buffers.Put(buf)
	for {
		end, sent, err := forward(stream, sub, buf)
		if err != nil || end != nil {
			return err
		}
		if sent {
			keepalive.Reset(every)
		}
		select {
		case <-sub.Ready:
		case <-ctx.Done():
			return ctx.Err()
		case <-keepalive.C:
			if err := ping(stream); err != nil {
				return err
			}
			keepalive.Reset(every)
		}
	}
}

func begin(stream *connect.Stream, pid int, gaps [streamCount]int64) error {
	b := append(stream.Begin(), `{"event":{"start":{"pid":`...)
	b = append(strconv.AppendInt(b, int64(pid), 10), `}}}`...)
	if err := stream.Commit(b, 0); err != nil {
		return err
	}
	for s, bytes := range gaps {
		if bytes > 0 {
			gap := map[string]any{"event": map[string]any{"gap": map[string]any{"stream": Stream(s).String(), "bytes": bytes}}}
			if err := stream.Send(gap); err != nil {
				return err
			}
		}
	}
	return stream.Flush()
}

func ping(stream *connect.Stream) error {
	if err := stream.Commit(append(stream.Begin(), `{"event":{"keepalive":{}}}`...), 0); err != nil {
		return err
	}
	return stream.Flush()
}

// forward sends what there is, then flushes once.
func forward(stream *connect.Stream, sub *Subscriber, buf *[chunkSize]byte) (end *End, sent bool, err error) {
	for {
		kind, offset, n, over := sub.Next(buf[:])
		if n == 0 {
			end = over
			break
		}
		b := append(stream.Begin(), `{"event":{"data":{"`...)
		b = append(append(b, kind.String()...), `":"`...)
		b = base64.StdEncoding.AppendEncode(b, buf[:n])
		b = append(b, `","offset":`...)
		b = append(strconv.AppendInt(b, offset, 10), `}}}`...)
		if err := stream.Commit(b, 0); err != nil {
			return nil, true, err
		}
		sent = true
	}
	if end != nil {
		return end, sent, stream.Send(map[string]any{"event": map[string]any{"end": end}})
	}
	if sent {
		err = stream.Flush()
	}
	return nil, sent, err
}
