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

	mu        sync.Mutex
	read      int64
	delivered int64 // of those, how many the output buffer has taken
	last      time.Time
}

func newReader(stream Stream, file *os.File, out *output, moved func()) *reader {
	return &reader{stream: stream, file: file, out: out, moved: moved, eof: make(chan struct{})}
}

// run reads until the end of the file; EIO is how a terminal says that.
func (r *reader) run(buffers *sync.Pool) {
	defer close(r.eof)
	defer r.file.Close()
	raw, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	buf := buffers.Get().(*[chunkSize]byte)
	defer buffers.Put(buf)
	limit := len(buf)
	if r.stream == Pty {
		limit /= 2
	}
	for {
		n := r.take(raw, buf[:limit])
		if n <= 0 {
			return
		}
		r.out.write(r.stream, buf[:n])
		r.moved()
		r.settle()
	}
}

// take waits for data and reads it; 0 or less is the end of the file. Reading
// and noting what was read are one step under the lock: a piece is always
// either in the pipe or counted, however late this goroutine gets to run.
func (r *reader) take(raw syscall.RawConn, buf []byte) (n int) {
	err := raw.Read(func(fd uintptr) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		var err error
		for n, err = syscall.Read(int(fd), buf); err == syscall.EINTR; {
			n, err = syscall.Read(int(fd), buf)
		}
		if err == syscall.EAGAIN {
			return false
		}
		if n > 0 {
			r.read += int64(n)
		}
		return true
	})
	if err != nil {
		return 0
	}
	return n
}

func (r *reader) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered = r.read
	r.last = time.Now()
}

// progress returns how much was delivered, how much is on its way (in our hands
// or in the pipe), and since when nothing has moved.
func (r *reader) progress() (delivered, coming int64, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	coming = r.read - r.delivered + r.pending()
	return r.delivered, coming, r.last
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
// on every reader, or all that lay in the pipes at its exit delivered and then
// quiet. With a background child that never is quiet the wait ends after
// quietCap.
func drained(readers []*reader) {
	if allEOF(readers) {
		return
	}
	goal := make([]int64, len(readers))
	for i, r := range readers {
		delivered, coming, _ := r.progress()
		goal[i] = delivered + coming
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
		delivered, coming, last := r.progress()
		switch {
		case delivered < goal[i]:
			wait = max(wait, 10*time.Millisecond)
		case capped:
		case coming > 0:
			wait = max(wait, quietFor)
		case last.After(exited):
			wait = max(wait, quietFor-now.Sub(last))
		}
	}
	return wait
}
