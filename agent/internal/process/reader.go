package process

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// reader moves one pipe or terminal into the output buffer.
type reader struct {
	stream Stream
	file   *os.File
	out    *output
	moved  func()        // called after data arrived
	eof    chan struct{} // closed at the end of the file

	mu   sync.Mutex
	busy bool // between a read and the end of its delivery
	read int64
	last time.Time
}

func newReader(stream Stream, file *os.File, out *output, moved func()) *reader {
	return &reader{stream: stream, file: file, out: out, moved: moved, eof: make(chan struct{})}
}

// run reads until the end of the file; EIO is how a terminal says that.
func (r *reader) run(buffers *sync.Pool) {
	defer close(r.eof)
	defer r.file.Close()
	buf := buffers.Get().(*[chunkSize]byte)
	defer buffers.Put(buf)
	limit := len(buf)
	if r.stream == Pty {
		limit /= 2
	}
	for {
		n, err := r.file.Read(buf[:limit])
		if n > 0 {
			r.note(n)
			r.out.write(r.stream, buf[:n])
			r.moved()
			r.settle()
		}
		if err != nil {
			return
		}
	}
}

func (r *reader) note(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = true
	r.read += int64(n)
}

func (r *reader) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	r.last = time.Now()
}

// progress returns how much was read, how much waits in the pipe, and since
// when nothing has moved (zero time while a piece is being delivered).
func (r *reader) progress() (read, pending int64, last time.Time) {
	pending = r.pending()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		return r.read, max(pending, 1), time.Now()
	}
	return r.read, pending, r.last
}

// pending is FIONREAD, 0 when unknown.
func (r *reader) pending() int64 {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return 0
	}
	var n int32
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	})
	return int64(n)
}

func (r *reader) atEOF() bool {
	select {
	case <-r.eof:
		return true
	default:
		return false
	}
}

// drained waits until the output of an exited leader is complete: end of file
// on every reader, or all that lay in the pipes at its exit read and then
// quiet. With a background child that never is quiet the wait ends after
// quietCap.
func drained(readers []*reader) {
	if allEOF(readers) {
		return
	}
	goal := make([]int64, len(readers))
	for i, r := range readers {
		read, pending, _ := r.progress()
		goal[i] = read + pending
	}
	exited := time.Now()
	timer := time.NewTimer(quietFor)
	defer timer.Stop()
	for {
		if waitEOF(readers, timer.C) {
			return
		}
		wait := remaining(readers, goal, exited)
		if wait <= 0 {
			return
		}
		timer.Reset(wait)
	}
}

func allEOF(readers []*reader) bool {
	for _, r := range readers {
		if !r.atEOF() {
			return false
		}
	}
	return true
}

// waitEOF returns true when all are at their end, false when the timer fired.
func waitEOF(readers []*reader, timer <-chan time.Time) bool {
	for _, r := range readers {
		select {
		case <-r.eof:
		case <-timer:
			return allEOF(readers)
		}
	}
	return true
}

// remaining is how long to wait on; 0 when the output is complete.
func remaining(readers []*reader, goal []int64, exited time.Time) time.Duration {
	now := time.Now()
	capped := now.Sub(exited) >= quietCap
	var wait time.Duration
	for i, r := range readers {
		if r.atEOF() {
			continue
		}
		read, pending, last := r.progress()
		switch {
		case read < goal[i]:
			wait = max(wait, 10*time.Millisecond)
		case capped:
		case pending > 0:
			wait = max(wait, quietFor)
		case last.After(exited):
			wait = max(wait, quietFor-now.Sub(last))
		}
	}
	return wait
}
