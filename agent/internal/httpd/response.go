package httpd

import (
	"bufio"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"
)

// ResponseWriter builds an answer.
type ResponseWriter interface {
	Header() Header
	WriteHeader(status int)
	Write(p []byte) (int, error)
}

// direct is the size from which data goes to the socket without a copy.
const direct = 4 << 10

type response struct {
	conn       *conn
	request    *Request
	header     Header
	status     int
	sent       bool // the header is in the buffer
	chunked    bool
	noBody     bool
	length     int64 // what is still owed of Content-Length
	pending    []byte
	hijacked   bool
	closeAfter bool
}

func (w *response) Header() Header { return w.header }

// WriteHeader fixes the status. The header is written with the first data.
func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write sends data. A short answer is held back so that it can get a
// Content-Length.
func (w *response) Write(p []byte) (int, error) {
	if w.hijacked {
		return 0, errors.New("httpd: the connection was hijacked")
	}
	w.WriteHeader(StatusOK)
	if !w.sent {
		if w.header.Get("Content-Length") == "" && len(w.pending)+len(p) <= direct/2 {
			w.pending = append(w.pending, p...)
			return len(p), nil
		}
		w.sendHeader(-1)
		if err := w.sendPending(); err != nil {
			return 0, err
		}
	}
	return len(p), w.data(p)
}

func (w *response) sendPending() error {
	p := w.pending
	w.pending = nil
	return w.data(p)
}

// data writes payload, in a chunk if need be.
func (w *response) data(p []byte) error {
	if w.noBody || len(p) == 0 {
		return nil
	}
	out := w.conn.out
	if !w.chunked {
		if int64(len(p)) > w.length {
			return errors.New("httpd: more data than Content-Length says")
		}
		w.length -= int64(len(p))
		_, err := out.Write(p)
		return err
	}
	var size [24]byte
	head := append(strconv.AppendInt(size[:0], int64(len(p)), 16), '\r', '\n')
	if len(p) < direct {
		_, _ = out.Write(head)
		_, _ = out.Write(p)
		_, err := out.WriteString("\r\n")
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	all := net.Buffers{head, p, []byte("\r\n")}
	if l, ok := w.conn.rwc.(*lane); ok {
		_, err := l.write(&all)
		return err
	}
	_, err := all.WriteTo(w.conn.rwc)
	return err
}

// sendHeader puts the header into the buffer; size is the length of the whole
// body if it is known.
func (w *response) sendHeader(size int) {
	w.sent = true
	out := w.conn.out
	_, _ = out.WriteString("HTTP/1.1 " + itoa(w.status) + " " + reason(w.status) + "\r\n")
	empty := w.status == StatusNoContent || w.status == StatusNotModified || w.status < 200
	w.noBody = empty || w.request.Method == MethodHead
	given, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64)
	switch {
	case err == nil && !empty:
		w.length = given
	case empty:
		w.header.Del("Content-Length")
	case size >= 0:
		w.length = int64(size)
		w.header.Set("Content-Length", itoa(size))
	case w.request.old:
		w.closeAfter, w.length = true, 1<<62
	default:
		w.chunked = true
		w.header.Set("Transfer-Encoding", "chunked")
	}
	w.closeAfter = w.closeAfter || w.wantsClose()
	if w.closeAfter {
		w.header.Set("Connection", "close")
	}
	for key, values := range w.header {
		for _, value := range values {
			_, _ = out.WriteString(key + ": " + strings.NewReplacer("\r", " ", "\n", " ").Replace(value) + "\r\n")
		}
	}
	_, _ = out.WriteString("Date: " + time.Now().UTC().Format(TimeFormat) + "\r\n\r\n")
}

func (w *response) wantsClose() bool {
	client := w.request.Header.Get("Connection")
	if strings.EqualFold(w.header.Get("Connection"), "close") || strings.EqualFold(client, "close") {
		return true
	}
	return w.request.old && !strings.EqualFold(client, "keep-alive")
}

// end completes the answer after the handler.
func (w *response) end() error {
	w.WriteHeader(StatusOK)
	if !w.sent {
		w.sendHeader(len(w.pending))
		if err := w.sendPending(); err != nil {
			return err
		}
	}
	if w.chunked && !w.noBody {
		_, _ = w.conn.out.WriteString("0\r\n\r\n")
	}
	if w.length > 0 && !w.noBody && !w.chunked && w.length < 1<<61 {
		w.closeAfter = true // the client sees that something is missing
	}
	return w.conn.out.Flush()
}

// ResponseController reaches the connection below an answer.
type ResponseController struct{ w *response }

// NewResponseController is for answers of this package only.
func NewResponseController(w ResponseWriter) *ResponseController {
	return &ResponseController{w: w.(*response)}
}

// Flush sends what is buffered.
func (c *ResponseController) Flush() error {
	w := c.w
	w.WriteHeader(StatusOK)
	if !w.sent {
		size := -1
		if w.header.Get("Content-Length") == "" && w.status == StatusNoContent {
			size = 0
		}
		w.sendHeader(size)
	}
	if len(w.pending) > 0 {
		if err := w.sendPending(); err != nil {
			return err
		}
	}
	return w.conn.out.Flush()
}

// SetReadDeadline limits reading of the body.
func (c *ResponseController) SetReadDeadline(t time.Time) error {
	return c.w.conn.rwc.SetReadDeadline(t)
}

// SetWriteDeadline limits writing of the answer.
func (c *ResponseController) SetWriteDeadline(t time.Time) error {
	return c.w.conn.rwc.SetWriteDeadline(t)
}

// Hijack takes the connection over; the caller closes it before its handler
// returns.
func (c *ResponseController) Hijack() (net.Conn, *bufio.Reader, error) {
	w := c.w
	if w.hijacked {
		return nil, nil, errors.New("httpd: hijacked twice")
	}
	if err := w.conn.out.Flush(); err != nil {
		return nil, nil, err
	}
	w.request.finish()
	w.hijacked = true
	_ = w.conn.rwc.SetDeadline(time.Time{})
	return w.conn.rwc, w.conn.in, nil
}

// proceed answers Expect: 100-continue.
func (c *conn) proceed() error {
	_, _ = c.out.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
	return c.out.Flush()
}

func itoa(n int) string { return strconv.Itoa(n) }

func quote(s string) string { return strconv.Quote(s) }

func reason(status int) string {
	switch status {
	case 101:
		return "Switching Protocols"
	case StatusOK:
		return "OK"
	case StatusNoContent:
		return "No Content"
	case StatusPartialContent:
		return "Partial Content"
	case StatusNotModified:
		return "Not Modified"
	case StatusBadRequest:
		return "Bad Request"
	case StatusUnauthorized:
		return "Unauthorized"
	case StatusNotFound:
		return "Not Found"
	case StatusBadGateway:
		return "Bad Gateway"
	case StatusInsufficientStorage:
		return "Insufficient Storage"
	}
	return "Status " + itoa(status)
}
