package server

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const ringSize = 64 << 10

// Ring is the log: the newest 64 KiB of lines, kept in memory, because the
// guest could fill any file or flood any stream the host reads.
type Ring struct {
	mu   sync.Mutex
	data []byte
}

// Printf adds a line: an event with keys, no secrets, no contents.
func (r *Ring) Printf(format string, args ...any) {
	line := time.Now().UTC().Format("2006-01-02T15:04:05.000Z ") + fmt.Sprintf(format, args...)
	_, _ = r.Write([]byte(strings.TrimRight(line, "\n") + "\n"))
}

// Write lets the ring be the output of a log.Logger.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = append(r.data, p...)
	if over := len(r.data) - ringSize; over > ringSize/4 {
		r.data = append(r.data[:0], r.data[over:]...)
	}
	return len(p), nil
}

// CopyTo writes the newest 64 KiB.
func (r *Ring) CopyTo(w io.Writer) {
	r.mu.Lock()
	data := append([]byte(nil), r.data[max(0, len(r.data)-ringSize):]...)
	r.mu.Unlock()
	_, _ = w.Write(data)
}
