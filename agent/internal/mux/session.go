package mux

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"syscall"
)

// maxStreams is the most that can be open at a time.
const maxStreams = 512

// buffers hold frames while they are put together.
var buffers = sync.Pool{New: func() any { return new([maxFrame]byte) }}

// wire writes whole frames, one after the other.
type wire struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *wire) send(k kind, stream uint32, payload []byte) error {
	buf := buffers.Get().(*[maxFrame]byte)
	defer buffers.Put(buf)
	copy(buf[headerSize:], payload)
	return w.write(seal(buf[:], k, stream, len(payload)))
}

func (w *wire) write(whole []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(whole)
	return err
}

// session is what lies between a hello and the next.
type session struct {
	wire *wire

	mu      sync.Mutex
	streams map[uint32]*Stream
	newest  uint32
	err     error // why it is over
}

func newSession(w *wire) *session {
	return &session{wire: w, streams: map[uint32]*Stream{}}
}

func (s *session) send(k kind, stream uint32, payload []byte) error {
	if err := s.over(); err != nil {
		return err
	}
	return s.wire.send(k, stream, payload)
}

func (s *session) write(whole []byte) error {
	if err := s.over(); err != nil {
		return err
	}
	return s.wire.write(whole)
}

func (s *session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// add makes a stream. The id 0 asks for the next free one.
func (s *session) add(id uint32) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if id == 0 {
		id = s.newest + 1
	}
	if id <= s.newest || len(s.streams) >= maxStreams {
		return nil, fmt.Errorf("mux: no stream %d: %d are open: %w", id, len(s.streams), syscall.EMFILE)
	}
	s.newest = id
	st := newStream(s, id)
	s.streams[id] = st
	return st, nil
}

func (s *session) find(id uint32) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

func (s *session) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.id)
}

// end fails all streams.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	all := slices.Collect(maps.Values(s.streams))
	clear(s.streams)
	s.mu.Unlock()
	for _, st := range all {
		st.fail(err)
	}
}

// handle does what a frame says about a stream. Frames of streams that are
// forgotten were on their way when they were.
func (s *session) handle(f frame) error {
	st := s.find(f.stream)
	if st == nil {
		return nil
	}
	switch f.kind {
	case data:
		if !st.take(f.payload) {
			return fmt.Errorf("mux: stream %d: more bytes than were granted", f.stream)
		}
	case window:
		if !st.grant(f.payload) {
			return fmt.Errorf("mux: stream %d: grants more than was sent", f.stream)
		}
	case fin:
		st.end(false)
	case shut:
		st.end(true)
	}
	return nil
}
