package httpd

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBuffer  = 8 << 10
	writeBuffer = 8 << 10
)

// conn is one client connection.
type conn struct {
	server *Server
	rwc    net.Conn
	in     *bufio.Reader
	out    *bufio.Writer
	cut    atomic.Bool // closed by us, so nobody went away

	mu       sync.Mutex
	idle     bool // between requests
	endless  bool // its request is a stream, which ends when it ends
	retiring bool // to be closed as soon as it is idle
}

func newConn(s *Server, rwc net.Conn) *conn {
	c := &conn{server: s, rwc: rwc, idle: true}
	c.in = bufio.NewReaderSize((*wire)(c), readBuffer)
	c.out = bufio.NewWriterSize((*wire)(c), writeBuffer)
	return c
}

// wire is whatever the connection is by now.
type wire conn

func (w *wire) Read(p []byte) (int, error)  { return w.rwc.Read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.rwc.Write(p) }

// retire closes the connection now if it is idle, else after its request.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retiring = true
	if c.idle {
		_ = c.rwc.Close()
	}
}

// note remembers whether it makes sense to wait for the end of a request.
func (c *conn) note(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endless = strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") || r.Header.Get("Upgrade") != ""
}

// isShort says whether a request is being answered that will be over soon.
func (c *conn) isShort() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.idle && !c.endless
}

// busy marks the begin or the end of a request; false means stop.
func (c *conn) busy(on bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = !on
	return !c.retiring
}

func (c *conn) serve() {
	hijacked := false
	defer func() {
		if !hijacked {
			_ = c.rwc.Close()
		}
	}()
	for {
		_ = c.rwc.SetReadDeadline(time.Now().Add(c.server.IdleTimeout))
		if _, err := c.in.Peek(1); err != nil || !c.busy(true) {
			return
		}
		_ = c.rwc.SetReadDeadline(time.Now().Add(c.server.ReadHeaderTimeout))
		r, err := readRequest(c)
		if err != nil {
			c.refuse(err)
			return
		}
		_ = c.rwc.SetReadDeadline(time.Time{})
		c.carry(r.Header.Get(CarryHeader))
		c.note(r)
		var again bool
		again, hijacked = c.answer(r)
		if !again || !c.busy(false) {
			return
		}
	}
}

// answer runs the handler and completes its answer; again says whether the
// connection can carry another request.
func (c *conn) answer(r *Request) (again, hijacked bool) {
	w := &response{conn: c, request: r, header: Header{}}
	r.response = w
	complete := c.server.run(w, r)
	r.finish()
	if w.hijacked {
		return false, true
	}
	if !complete {
		reset(c.rwc)
		return false, false
	}
	if w.end() != nil || w.closeAfter {
		c.linger(r)
		return false, false
	}
	_ = c.rwc.SetDeadline(time.Time{})
	return r.body.drain() == nil, false
}

// linger lets a client that is still sending read the answer before the
// connection goes: closing with unread data would reset it.
func (c *conn) linger(r *Request) {
	half, ok := c.rwc.(interface{ CloseWrite() error })
	if !ok || r.body.ended() {
		return
	}
	_ = half.CloseWrite()
	_ = c.rwc.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	var buf [4096]byte
	for {
		if _, err := c.rwc.Read(buf[:]); err != nil {
			return
		}
	}
}

// reset makes a TCP client see an error instead of an orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

func (c *conn) refuse(err error) {
	var bad *badRequest
	if !errors.As(err, &bad) {
		return // gone, or too slow
	}
	_ = c.rwc.SetWriteDeadline(time.Now().Add(time.Second))
	body := `{"code":` + itoa(bad.status) + `,"message":` + quote(bad.text) + `}`
	_, _ = c.out.WriteString("HTTP/1.1 " + itoa(bad.status) + " " + reason(bad.status) +
		"\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body)
	_ = c.out.Flush()
}

// departure watches for the client's going away while a handler runs. Only one
// goroutine at a time reads from the connection: it starts when the body is at
// its end and is stopped before the next request is read.
type departure struct {
	conn   *conn
	cancel context.CancelFunc
	done   chan struct{}
}

func (c *conn) watch(cancel context.CancelFunc) *departure {
	d := &departure{conn: c, cancel: cancel, done: make(chan struct{})}
	_ = c.rwc.SetReadDeadline(time.Time{})
	go func() {
		defer close(d.done)
		if _, err := c.in.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
	return d
}

// stop ends the watch; what was read meanwhile stays in the buffer.
func (d *departure) stop() {
	_ = d.conn.rwc.SetReadDeadline(time.Unix(1, 0))
	<-d.done
	_ = d.conn.rwc.SetReadDeadline(time.Time{})
}
