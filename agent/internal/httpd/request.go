package httpd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Header is a set of header fields, keys in canonical form.
type Header map[string][]string

// Get returns the first value.
func (h Header) Get(key string) string { return textproto.MIMEHeader(h).Get(key) }

// Set replaces all values.
func (h Header) Set(key, value string) { textproto.MIMEHeader(h).Set(key, value) }

// Del removes a field.
func (h Header) Del(key string) { textproto.MIMEHeader(h).Del(key) }

// Request is one request. Its body belongs to the handler until it returns.
type Request struct {
	Method        string
	URL           *url.URL
	Header        Header
	Body          io.ReadCloser
	ContentLength int64 // -1 when chunked

	old      bool // HTTP/1.0
	body     *body
	response *response

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
	gone   *departure
	over   bool
}

// Context ends when the client goes away (noticed once the body has been read
// to its end) and when the handler has returned.
func (r *Request) Context() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithCancel(context.Background())
		if r.body.ended() {
			r.gone = r.response.conn.watch(r.cancel)
		}
	}
	return r.ctx
}

// Cut says whether the server itself has closed the connection.
func (r *Request) Cut() bool { return r.response.conn.cut.Load() }

// bodyEnded is called when the body has been read to its end.
func (r *Request) bodyEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil && r.gone == nil && !r.over && !r.response.hijacked {
		r.gone = r.response.conn.watch(r.cancel)
	}
}

// finish ends the context and the watch.
func (r *Request) finish() {
	r.mu.Lock()
	gone, cancel := r.gone, r.cancel
	r.gone, r.over = nil, true
	r.mu.Unlock()
	if gone != nil {
		gone.stop()
	}
	if cancel != nil {
		cancel()
	}
}

// BasicAuth reads `Authorization: Basic`.
func (r *Request) BasicAuth() (name, password string, ok bool) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(raw), ":")
}

// badRequest is answered before the connection is closed.
type badRequest struct {
	status int
	text   string
}

func (b *badRequest) Error() string { return b.text }

func bad(format string, args ...any) error {
	return &badRequest{status: StatusBadRequest, text: fmt.Sprintf(format, args...)}
}

// readRequest parses line and headers, at most MaxHeaderBytes of them.
func readRequest(c *conn) (*Request, error) {
	budget := c.server.MaxHeaderBytes
	line, err := readLine(c, &budget)
	for err == nil && line == "" { // be lenient about an empty line before it
		line, err = readLine(c, &budget)
	}
	if err != nil {
		return nil, err
	}
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || method == "" || (version != "HTTP/1.1" && version != "HTTP/1.0") {
		return nil, bad("malformed request line")
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, bad("malformed request target")
	}
	r := &Request{Method: method, URL: u, Header: Header{}, old: version == "HTTP/1.0"}
	for {
		line, err := readLine(c, &budget)
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, bad("malformed header field")
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		r.Header[key] = append(r.Header[key], strings.Trim(value, " \t"))
	}
	return r, r.attachBody(c)
}

func readLine(c *conn, budget *int) (string, error) {
	var long []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if *budget -= len(part); *budget < 0 {
			return "", &badRequest{status: 431, text: "the header is too large"}
		}
		if err == nil && long == nil {
			return trim(part), nil
		}
		long = append(long, part...)
		if err == nil {
			return trim(long), nil
		}
		if !errors.Is(err, errBufferFull) {
			return "", err
		}
	}
}

func trim(line []byte) string { return strings.TrimRight(string(line), "\r\n") }

// attachBody decides how the body is delimited.
//
// Source: RFC 9112, section 6.3. A message with both fields, or with more than
// one length, is refused.
func (r *Request) attachBody(c *conn) error {
	b := &body{conn: c, request: r}
	lengths, codings := r.Header["Content-Length"], r.Header["Transfer-Encoding"]
	switch {
	case len(codings) > 0:
		if len(codings) != 1 || !strings.EqualFold(codings[0], "chunked") || len(lengths) > 0 {
			return bad("unsupported transfer encoding")
		}
		b.chunked, r.ContentLength = true, -1
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || len(lengths) != 1 {
			return bad("malformed content length")
		}
		b.left, r.ContentLength = int64(n), int64(n)
		b.done = n == 0
	default:
		b.done = true
	}
	b.expects = !b.done && !r.old && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	r.body, r.Body = b, b
	return nil
}
