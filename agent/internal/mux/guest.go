package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	backlog = 128
	// MaxSettings is the longest text of settings.
	MaxSettings = 8 << 20
	freshSize   = 8 + 32 // time (unix ns), seed
)

// Told is what the host says: settings to a guest that boots, news to one that
// goes on after a restore.
type Told struct {
	Text []byte // JSON; nothing if it only shall go on
	Time time.Time
	Seed []byte
}

// parseFresh takes apart what begins with the time and a seed.
func parseFresh(payload []byte) (Told, bool) {
	if len(payload) < freshSize {
		return Told{}, false
	}
	return Told{
		Text: bytes.Clone(payload[freshSize:]),
		Time: time.Unix(0, int64(binary.LittleEndian.Uint64(payload))),
		Seed: bytes.Clone(payload[8:freshSize]),
	}, true
}

// Guest is the end that accepts.
type Guest struct {
	port io.Reader
	wire wire
	wake func(Told)

	mu        sync.Mutex
	current   *session
	listener  *listener // nil while nobody listens
	listening bool
	wants     chan Told // nil once they are there
	text      []byte
}

// NewGuest prepares an end; Run makes it work. wake is called when the host
// says that a held agent may go on.
//
// Streams that come before the first Listen wait for it.
func NewGuest(port io.ReadWriter, wake func(Told)) *Guest {
	g := &Guest{port: port, wire: wire{out: port}, wake: wake, wants: make(chan Told, 1)}
	g.listener = g.newListener()
	return g
}

// Settings is where what the host says at the boot arrives, once.
func (g *Guest) Settings() <-chan Told {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wants
}

// Run reads until the port fails. A session lasts until the next hello: that
// the host has gone away is not taken from the port, which tells it beside the
// bytes and so perhaps late, when the next session has begun.
func (g *Guest) Run() error {
	d := &decoder{in: g.port}
	for {
		f, err := d.next()
		switch {
		case errors.Is(err, errFrame): // the rest of one that was cut short
		case err != nil:
			g.replace(nil)
			return fmt.Errorf("read from the port: %w", err)
		default:
			g.handle(f)
		}
	}
}

// replace ends a session and puts the next one in its place.
func (g *Guest) replace(next *session) {
	g.mu.Lock()
	old := g.current
	g.current = next
	g.text = nil
	g.mu.Unlock()
	if old != nil {
		old.end(syscall.ECONNRESET)
	}
}

func (g *Guest) handle(f frame) {
	if f.kind == hello {
		g.greet(f.payload)
		return
	}
	g.mu.Lock()
	s := g.current
	g.mu.Unlock()
	if s == nil {
		return // what was said before the hello
	}
	switch f.kind {
	case open:
		g.accept(s, f.stream)
	case settings:
		g.gather(f.payload)
	case begin:
		g.complete(f.payload)
	case wake:
		if told, ok := parseFresh(f.payload); ok {
			g.wake(told)
		}
	default:
		if err := s.handle(f); err != nil {
			g.replace(nil)
		}
	}
}

// greet begins a session. The answer may have to wait for a frame that somebody
// is still writing, so the reader does not wait for it.
func (g *Guest) greet(nonce []byte) {
	if len(nonce) != nonceSize {
		return
	}
	g.replace(newSession(&g.wire))
	answer := make([]byte, nonceSize+1)
	copy(answer, nonce)
	g.mu.Lock()
	if g.wants != nil {
		answer[nonceSize] = wantsSettings
	}
	g.mu.Unlock()
	go func() { _ = g.wire.send(hello, 0, answer) }()
}

func (g *Guest) gather(piece []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wants != nil && len(g.text)+len(piece) <= MaxSettings {
		g.text = append(g.text, piece...)
	}
}

func (g *Guest) complete(payload []byte) {
	told, ok := parseFresh(payload)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wants == nil || !ok {
		return
	}
	told.Text = g.text
	g.wants <- told
	g.wants, g.text = nil, nil
}

// accept hands a new stream to whoever listens; without one it is closed.
func (g *Guest) accept(s *session, id uint32) {
	st, err := s.add(id)
	g.mu.Lock()
	l := g.listener
	g.mu.Unlock()
	if err == nil && l != nil && l.offer(st) {
		return
	}
	if err == nil {
		s.forget(st)
	}
	go func() { _ = s.send(shut, id, nil) }()
}

// Listen accepts streams until the listener is closed; then one can listen
// again.
func (g *Guest) Listen() (net.Listener, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listening {
		return nil, fmt.Errorf("listen on the port: %w", syscall.EADDRINUSE)
	}
	if g.listener == nil {
		g.listener = g.newListener()
	}
	g.listening = true
	return g.listener, nil
}

func (g *Guest) newListener() *listener {
	return &listener{guest: g, queue: make(chan *Stream, backlog), over: make(chan struct{})}
}

type listener struct {
	guest *Guest
	queue chan *Stream
	over  chan struct{}
	once  sync.Once
}

func (l *listener) offer(st *Stream) bool {
	select {
	case <-l.over:
		return false
	default:
	}
	select {
	case l.queue <- st:
	default:
		return false
	}
	select {
	case <-l.over: // closed since we looked, and perhaps emptied
		l.drain()
	default:
	}
	return true
}

// drain closes what nobody will accept any more.
func (l *listener) drain() {
	for {
		select {
		case st := <-l.queue:
			_ = st.Close()
		default:
			return
		}
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.over:
		return nil, net.ErrClosed
	case st := <-l.queue:
		return st, nil
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.guest.mu.Lock()
		l.guest.listener, l.guest.listening = nil, false
		l.guest.mu.Unlock()
		close(l.over)
		l.drain()
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return Addr{} }
