package httpd

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// CarryHeader names a connection that its client will continue over another
// socket, after this one had to be closed for a snapshot.
const CarryHeader = "Tupper-Carry"

const (
	// parkLimit is how long a client may take to close its half.
	parkLimit = 2 * time.Second
	// parkedLimit is how long it may take to come back.
	parkedLimit = 90 * time.Second
	// maxKept is the most that can be on its way when a socket is closed.
	maxKept = 4 << 20
	maxID   = 64
	// shortLimit is how long requests that are no streams may take to finish.
	shortLimit = 300 * time.Millisecond
)

// lane is a connection that can change the socket below it. Handlers do not
// notice: while there is no socket, reads and writes wait.
//
// To park it we say "no more" on the socket and read until the client says so
// too. Then nothing is on its way any more, in either direction, and the socket
// can go. No byte is numbered and none is copied while nothing happens.
type lane struct {
	id            string
	local, remote net.Addr

	wmu sync.Mutex // around each write to the socket
	rmu sync.Mutex // around each read from it

	mu       sync.Mutex
	moved    *sync.Cond
	raw      halfConn // nil while parked
	parked   bool
	dead     bool
	halfShut bool   // the handler has said "no more"
	kept     []byte // came in while it was being parked
	readBy   time.Time
	writeBy  time.Time
	expiry   *time.Timer
}

type halfConn interface {
	net.Conn
	CloseWrite() error
}

func newLane(id string, raw halfConn) *lane {
	l := &lane{id: id, raw: raw, local: raw.LocalAddr(), remote: raw.RemoteAddr()}
	l.moved = sync.NewCond(&l.mu)
	return l
}

// socket waits for one; by is the deadline of whoever asks.
func (l *lane) socket(by *time.Time) (halfConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.parked && !l.dead && !expired(*by) {
		l.moved.Wait()
	}
	switch {
	case l.dead:
		return nil, net.ErrClosed
	case l.parked:
		return nil, os.ErrDeadlineExceeded
	}
	return l.raw, nil
}

// again says whether a failure was only the change of sockets.
func (l *lane) again(raw halfConn, by *time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	return l.parked || l.raw != raw || (errors.Is(err, os.ErrDeadlineExceeded) && !expired(*by))
}

func (l *lane) Read(p []byte) (int, error) {
	for {
		raw, err := l.socket(&l.readBy)
		if n := l.take(p); n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		l.rmu.Lock()
		n, err := raw.Read(p)
		l.rmu.Unlock()
		if n > 0 || err == nil || !l.again(raw, &l.readBy, err) {
			return n, err
		}
	}
}

func (l *lane) take(p []byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parked {
		return 0
	}
	n := copy(p, l.kept)
	l.kept = l.kept[n:]
	return n
}

func (l *lane) Write(p []byte) (int, error) {
	n, err := l.write(&net.Buffers{p})
	return int(n), err
}

// write sends all of it; what a change of sockets interrupts goes on after it.
func (l *lane) write(b *net.Buffers) (int64, error) {
	var sent int64
	for {
		raw, err := l.socket(&l.writeBy)
		if err != nil {
			return sent, err
		}
		l.wmu.Lock()
		n, err := b.WriteTo(raw)
		l.wmu.Unlock()
		sent += n
		if err == nil || !l.again(raw, &l.writeBy, err) {
			return sent, err
		}
	}
}

// CloseWrite says "no more" to the client.
func (l *lane) CloseWrite() error {
	raw, err := l.socket(&l.writeBy)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.halfShut = true
	l.mu.Unlock()
	return raw.CloseWrite()
}

func (l *lane) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.die()
	if l.raw == nil {
		return nil
	}
	return l.raw.Close()
}

// die wants mu held.
func (l *lane) die() {
	l.dead = true
	if l.expiry != nil {
		l.expiry.Stop()
	}
	l.moved.Broadcast()
}

func (l *lane) LocalAddr() net.Addr  { return l.local }
func (l *lane) RemoteAddr() net.Addr { return l.remote }

func (l *lane) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

func (l *lane) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	l.moved.Broadcast()
	if l.parked || l.raw == nil {
		return nil
	}
	return l.raw.SetReadDeadline(t)
}

func (l *lane) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeBy = t
	l.moved.Broadcast()
	if l.parked || l.raw == nil {
		return nil
	}
	return l.raw.SetWriteDeadline(t)
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// park gives up the socket. A client that does not take part loses its
// connection.
func (l *lane) park() {
	l.mu.Lock()
	if l.dead || l.parked {
		l.mu.Unlock()
		return
	}
	l.parked = true
	raw := l.raw
	_ = raw.SetDeadline(time.Unix(1, 0)) // whoever reads or writes comes out
	l.mu.Unlock()
	l.wmu.Lock()
	l.rmu.Lock()
	defer l.wmu.Unlock()
	defer l.rmu.Unlock()
	_ = raw.SetDeadline(time.Now().Add(parkLimit))
	err := raw.CloseWrite()
	var rest []byte
	if err == nil {
		rest, err = io.ReadAll(io.LimitReader(raw, maxKept))
	}
	_ = raw.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.raw = nil
	l.kept = append(l.kept, rest...)
	if err != nil || len(rest) == maxKept {
		l.die()
		return
	}
	l.expiry = time.AfterFunc(parkedLimit, func() { l.leave() })
}

// leave gives up on a client that did not come back.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parked {
		l.die()
	}
}

// unpark goes on over another socket; early is what came over it already.
func (l *lane) unpark(raw halfConn, early []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || !l.parked || l.raw != nil {
		return false
	}
	l.expiry.Stop()
	_ = raw.SetReadDeadline(l.readBy)
	_ = raw.SetWriteDeadline(l.writeBy)
	if l.halfShut {
		_ = raw.CloseWrite()
	}
	l.raw, l.parked = raw, false
	l.kept = append(l.kept, early...)
	l.moved.Broadcast()
	return true
}

// carry makes a lane of the connection if its client asks for that. Only
// between requests: nobody else reads or writes then.
func (c *conn) carry(id string) {
	raw, ok := c.rwc.(halfConn)
	if _, already := c.rwc.(*lane); already || !ok || id == "" || len(id) > maxID {
		return
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.lanes[id]; taken {
		return
	}
	l := newLane(id, raw)
	if s.lanes == nil {
		s.lanes = map[string]*lane{}
	}
	s.lanes[id] = l
	c.rwc = l
}

// DisconnectBut closes all connections but the one of an answer. Those that
// their clients want to continue are parked; of the others, those that answer a
// request which is no stream get a moment to finish, and handlers can tell by
// Request.Cut that it was not their client who went away.
func (s *Server) DisconnectBut(w ResponseWriter) {
	own := w.(*response).conn
	for end := time.Now().Add(shortLimit); s.answers(own) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	var parking sync.WaitGroup
	s.mu.Lock()
	for c := range s.conns {
		if c == own {
			continue
		}
		if l, ok := c.rwc.(*lane); ok {
			parking.Add(1)
			go func() {
				defer parking.Done()
				l.park()
			}()
			continue
		}
		c.cut.Store(true)
		_ = c.rwc.Close()
	}
	s.mu.Unlock()
	parking.Wait()
}

// answers says whether somebody else gets a short answer now.
func (s *Server) answers(own *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if _, isLane := c.rwc.(*lane); c != own && !isLane && c.isShort() {
			return true
		}
	}
	return false
}

// Continue puts the connection of a request below a parked lane; false if
// there is none of this name.
func (s *Server) Continue(w ResponseWriter, id string) bool {
	s.mu.Lock()
	l := s.lanes[id]
	s.mu.Unlock()
	if l == nil || !l.isParked() {
		return false
	}
	conn, in, err := NewResponseController(w).Hijack()
	if err != nil {
		return true
	}
	raw, ok := conn.(halfConn)
	early := make([]byte, in.Buffered())
	_, _ = io.ReadFull(in, early)
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tupper-carry\r\n\r\n")
	if !ok || err != nil || !l.unpark(raw, early) {
		_ = conn.Close()
	}
	return true
}

func (l *lane) isParked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parked && !l.dead
}

// DropParked gives up on all clients that have not come back: in a copy of
// this sandbox they never will.
func (s *Server) DropParked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		l.leave()
	}
}
