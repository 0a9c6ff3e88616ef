package httpd

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ServeContent answers a request for a file that has ranges or conditions.
// Several ranges at once are answered with the whole, as RFC 9110 allows.
func ServeContent(w ResponseWriter, r *Request, size int64, modified time.Time, file io.ReadSeeker) {
	switch unchanged, failed := conditions(r.Header, modified); {
	case failed:
		w.WriteHeader(StatusPreconditionFailed)
		return
	case unchanged && (r.Method == MethodGet || r.Method == MethodHead):
		w.WriteHeader(StatusNotModified)
		return
	}
	start, length, state := byteRange(r.Header, size, modified)
	switch state {
	case rangeBad:
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(StatusRangeNotSatisfiable)
		return
	case rangeGood:
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+length-1, size))
		w.WriteHeader(StatusPartialContent)
	}
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	if r.Method == MethodHead {
		return
	}
	if _, err := file.Seek(start, io.SeekStart); err != nil {
		panic(ErrAbortHandler)
	}
	control := NewResponseController(w)
	buf := make([]byte, 64<<10)
	for length > 0 {
		n, err := file.Read(buf[:min(length, int64(len(buf)))])
		if n == 0 && err != nil {
			panic(ErrAbortHandler)
		}
		_ = control.SetWriteDeadline(time.Now().Add(60 * time.Second))
		if _, err := w.Write(buf[:n]); err != nil {
			return
		}
		length -= int64(n)
	}
}

// conditions evaluates the time-based ones; there are no entity tags.
func conditions(h Header, modified time.Time) (unchanged, failed bool) {
	modified = modified.Truncate(time.Second)
	if since, err := time.Parse(TimeFormat, h.Get("If-Unmodified-Since")); err == nil {
		failed = modified.After(since)
	}
	if h.Get("If-Match") != "" {
		failed = h.Get("If-Match") != "*"
	}
	if since, err := time.Parse(TimeFormat, h.Get("If-Modified-Since")); err == nil && h.Get("If-None-Match") == "" {
		unchanged = !modified.After(since)
	}
	return unchanged, failed
}

const (
	rangeNone = iota
	rangeGood
	rangeBad
)

// byteRange reads a Range header of one range.
func byteRange(h Header, size int64, modified time.Time) (start, length int64, state int) {
	spec, ok := strings.CutPrefix(h.Get("Range"), "bytes=")
	if condition := h.Get("If-Range"); condition != "" {
		at, err := time.Parse(TimeFormat, condition)
		ok = ok && err == nil && at.Equal(modified.Truncate(time.Second))
	}
	if !ok || strings.Contains(spec, ",") {
		return 0, size, rangeNone
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return 0, size, rangeNone
	}
	last, lastErr := strconv.ParseInt(to, 10, 64)
	if from == "" {
		if lastErr != nil || last <= 0 {
			return 0, 0, rangeBad
		}
		last = min(last, size)
		return size - last, last, rangeGood
	}
	start, err := strconv.ParseInt(from, 10, 64)
	switch {
	case err != nil || (to != "" && lastErr != nil) || (to != "" && last < start):
		return 0, size, rangeNone
	case start >= size:
		return 0, 0, rangeBad
	case to == "" || last >= size:
		last = size - 1
	}
	return start, last - start + 1, rangeGood
}
