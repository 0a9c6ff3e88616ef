package mux

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// windowSize is how much of a stream may be on its way in each direction.
	windowSize = 256 << 10
	// keepCap is what an empty stream keeps of its buffer.
	keepCap = 16 << 10
)

// Stream is one connection. It can be closed by halves.
type Stream struct {
	session *session
	id      uint32

	mu       sync.Mutex
	changed  sync.Cond // something below, or time
	kept     []byte    // came in and is not read: from at on
	at       int
	owed     int    // read, and not granted again
	credit   int    // may be sent
	over     bool   // the other end sends no more
	deaf     bool   // the other end reads no more
	finished bool   // we send no more
	closed   bool   // by us
	err      error  // the session's end
	gone     func() // called when the other end reads no more
	readBy   limit
	writeBy  limit
}

func newStream(s *session, id uint32) *Stream {
	st := &Stream{session: s, id: id, credit: windowSize}
	st.changed.L = &st.mu
	return st
}

// limit is a deadline that wakes those who wait.
type limit struct {
	at    time.Time
	timer *time.Timer
}

func (l *limit) set(t time.Time, alarm func()) {
	l.at = t
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if left := time.Until(t); !t.IsZero() && left > 0 {
		l.timer = time.AfterFunc(left, alarm)
	}
}

func (l *limit) expired() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }

// take puts what came in where Read finds it. A peer that sends more than was
// granted is refused.
func (st *Stream) take(p []byte) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.over {
		return true // on its way when we closed
	}
	if len(st.kept)-st.at+st.owed+len(p) > windowSize {
		return false
	}
	if st.at > 0 && len(st.kept)+len(p) > cap(st.kept) {
		st.kept = st.kept[:copy(st.kept, st.kept[st.at:])]
		st.at = 0
	}
	st.kept = append(st.kept, p...)
	st.changed.Broadcast()
	return true
}

// grant adds to what may be sent.
func (st *Stream) grant(payload []byte) bool {
	if len(payload) != 4 {
		return false
	}
	n := binary.LittleEndian.Uint32(payload)
	st.mu.Lock()
	defer st.mu.Unlock()
	if uint64(st.credit)+uint64(n) > windowSize {
		return false
	}
	st.credit += int(n)
	st.changed.Broadcast()
	return true
}

// end notes that the other end sends no more, or neither reads.
func (st *Stream) end(deaf bool) {
	st.mu.Lock()
	st.over = true
	st.deaf = st.deaf || deaf
	gone := st.gone
	st.changed.Broadcast()
	st.mu.Unlock()
	if deaf && gone != nil {
		gone()
	}
}

// fail ends both directions at once.
func (st *Stream) fail(err error) {
	st.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	gone := st.gone
	st.changed.Broadcast()
	st.mu.Unlock()
	if gone != nil {
		gone()
	}
}

// WhenGone names what to call when the other end reads no more, for callers
// that wait for something to send. It must not block.
func (st *Stream) WhenGone(call func()) {
	st.mu.Lock()
	st.gone = call
	already := st.deaf || st.err != nil
	st.mu.Unlock()
	if already {
		call()
	}
}

// Read implements net.Conn.
func (st *Stream) Read(p []byte) (int, error) {
	n, owed, err := st.read(p)
	if owed > 0 {
		var more [4]byte
		binary.LittleEndian.PutUint32(more[:], uint32(owed))
		// Without the link the next read says so.
		_ = st.session.send(window, st.id, more[:])
	}
	return n, err
}

func (st *Stream) read(p []byte) (n, owed int, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.at == len(st.kept) {
		switch {
		case st.closed:
			return 0, 0, net.ErrClosed
		case st.err != nil:
			return 0, 0, st.err
		case st.over:
			return 0, 0, io.EOF
		case st.readBy.expired():
			return 0, 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, 0, nil
		}
		st.changed.Wait()
	}
	n = copy(p, st.kept[st.at:])
	st.at += n
	st.owed += n
	if st.at == len(st.kept) {
		st.kept, st.at = st.kept[:0], 0
		if cap(st.kept) > keepCap && st.over {
			st.kept = nil
		}
	}
	if st.owed >= windowSize/2 && !st.over && st.err == nil {
		owed, st.owed = st.owed, 0
	}
	return n, owed, nil
}

// room waits until something may be sent, and takes up to most bytes of it.
func (st *Stream) room(most int) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		switch {
		case st.closed, st.finished:
			return 0, net.ErrClosed
		case st.err != nil:
			return 0, st.err
		case st.deaf:
			return 0, syscall.EPIPE
		case st.writeBy.expired():
			return 0, os.ErrDeadlineExceeded
		case st.credit > 0:
			n := min(most, st.credit, MaxPayload)
			st.credit -= n
			return n, nil
		}
		st.changed.Wait()
	}
}

// giveBack returns room that was not used.
func (st *Stream) giveBack(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.credit += n
	st.changed.Broadcast()
}

// Write implements net.Conn.
func (st *Stream) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := st.room(len(p) - done)
		if err != nil {
			return done, err
		}
		if err := st.session.send(data, st.id, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// ReadFrom sends all that r has. Each read goes right into the frame that is sent.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[maxFrame]byte)
	defer buffers.Put(buf)
	var total int64
	for {
		size, err := st.room(MaxPayload)
		if err != nil {
			return total, err
		}
		n, err := r.Read(buf[headerSize : headerSize+size])
		st.giveBack(size - n)
		if n > 0 {
			if serr := st.session.write(seal(buf[:], data, st.id, n)); serr != nil {
				return total, serr
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// WriteTo passes all that comes in on to w.
func (st *Stream) WriteTo(w io.Writer) (int64, error) {
	buf := buffers.Get().(*[maxFrame]byte)
	defer buffers.Put(buf)
	var total int64
	for {
		n, err := st.Read(buf[:])
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return total, werr
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// CloseWrite says that no more will be sent.
func (st *Stream) CloseWrite() error {
	st.mu.Lock()
	if st.finished || st.closed || st.err != nil {
		st.mu.Unlock()
		return nil
	}
	st.finished = true
	st.changed.Broadcast()
	st.mu.Unlock()
	return st.session.send(fin, st.id, nil)
}

// Close ends both directions. What was written before arrives.
func (st *Stream) Close() error {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil
	}
	st.closed = true
	silent := st.err != nil || st.finished && st.over
	st.kept, st.at = nil, 0
	st.readBy.set(time.Time{}, nil)
	st.writeBy.set(time.Time{}, nil)
	st.changed.Broadcast()
	st.mu.Unlock()
	st.session.forget(st)
	if silent {
		return nil
	}
	return st.session.send(shut, st.id, nil)
}

func (st *Stream) wakeAll() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.changed.Broadcast()
}

// SetDeadline implements net.Conn.
func (st *Stream) SetDeadline(t time.Time) error {
	_ = st.SetReadDeadline(t)
	return st.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (st *Stream) SetReadDeadline(t time.Time) error { return st.setLimit(&st.readBy, t) }

// SetWriteDeadline implements net.Conn. A write that waits for the port itself
// does not end with it.
func (st *Stream) SetWriteDeadline(t time.Time) error { return st.setLimit(&st.writeBy, t) }

func (st *Stream) setLimit(l *limit, t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return net.ErrClosed
	}
	l.set(t, st.wakeAll)
	st.changed.Broadcast()
	return nil
}

// Addr is what both ends of a stream are called.
type Addr struct{}

// Network implements net.Addr.
func (Addr) Network() string { return "mux" }

func (Addr) String() string { return "mux" }

// LocalAddr implements net.Conn.
func (st *Stream) LocalAddr() net.Addr { return Addr{} }

// RemoteAddr implements net.Conn.
func (st *Stream) RemoteAddr() net.Addr { return Addr{} }
