// Package httpd is a small HTTP/1.1 server, with the names of net/http where
// it does the same.
//
// Why not net/http: it links TLS, X.509 and HTTP/2, none of which an agent on
// a private socket can use, and so is more than half of the binary, which has
// to fit in 6 MiB and to be in every sandbox's memory. It also copies large
// bodies 32 KiB at a time. What is left out on purpose: TLS, HTTP/2, trailers,
// multi-part ranges, HTTP/0.9.
//
// Lifetime: Serve runs until Close or Shutdown; a connection has one
// goroutine, plus one that watches for the client's departure while a handler
// that asked for its Context runs.
package httpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Status codes by name.
const (
	StatusContinue            = 100
	StatusOK                  = 200
	StatusNoContent           = 204
	StatusPartialContent      = 206
	StatusNotModified         = 304
	StatusBadRequest          = 400
	StatusUnauthorized        = 401
	StatusForbidden           = 403
	StatusNotFound            = 404
	StatusMethodNotAllowed    = 405
	StatusNotAcceptable       = 406
	StatusConflict            = 409
	StatusPreconditionFailed  = 412
	StatusRangeNotSatisfiable = 416
	StatusUpgradeRequired     = 426
	StatusTooManyRequests     = 429
	StatusInternalServerError = 500
	StatusNotImplemented      = 501
	StatusBadGateway          = 502
	StatusServiceUnavailable  = 503
	StatusGatewayTimeout      = 504
	StatusInsufficientStorage = 507
)

// Methods by name.
const (
	MethodGet     = "GET"
	MethodHead    = "HEAD"
	MethodPost    = "POST"
	MethodOptions = "OPTIONS"
)

// TimeFormat is the layout of times in headers.
//
// Source: RFC 9110, section 5.6.7.
const TimeFormat = "Mon, 02 Jan 2006 15:04:05 GMT"

// Errors of this package.
var (
	ErrAbortHandler = errors.New("httpd: the handler gave up its answer")
	ErrServerClosed = errors.New("httpd: server closed")
)

// HandlerFunc answers one request.
type HandlerFunc func(w ResponseWriter, r *Request)

// Server serves any number of listeners.
type Server struct {
	Handler           HandlerFunc
	ReadHeaderTimeout time.Duration
	IdleTimeout       time.Duration
	MaxHeaderBytes    int
	Log               func(format string, args ...any)

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	lanes     map[string]*lane
	running   sync.WaitGroup
}

// Serve accepts connections until the listener or the server is closed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrServerClosed
	}
	if s.listeners == nil {
		s.listeners, s.conns = map[net.Listener]struct{}{}, map[*conn]struct{}{}
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		rwc, err := l.Accept()
		if err == nil {
			s.begin(rwc)
			continue
		}
		var ne net.Error
		if errors.Is(err, net.ErrClosed) || !errors.As(err, &ne) {
			return err
		}
		s.Log("httpd.accept_failed error=%q", err)
		time.Sleep(50 * time.Millisecond) // out of descriptors: let some go
	}
}

func (s *Server) begin(rwc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = rwc.Close()
		return
	}
	c := newConn(s, rwc)
	s.conns[c] = struct{}{}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer s.forget(c)
		c.serve()
	}()
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if l, ok := c.rwc.(*lane); ok {
		delete(s.lanes, l.id)
	}
}

// Disconnect closes all connections, hijacked ones too. Listeners stay.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.rwc.Close()
	}
}

// Shutdown closes the listeners and waits for the handlers until ctx ends,
// then closes all connections and waits for their goroutines.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		c.retire()
	}
	s.mu.Unlock()
	over := make(chan struct{})
	go func() {
		s.running.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
		s.Disconnect()
		<-over
	}
}

// run calls the handler and contains its panics. It reports whether the answer
// is complete.
func (s *Server) run(w *response, r *Request) (complete bool) {
	defer func() {
		if p := recover(); p != nil {
			complete = false
			if p != ErrAbortHandler {
				s.Log("httpd.panic path=%s value=%q stack=%q", r.URL.Path, fmt.Sprint(p), debug.Stack())
			}
		}
	}()
	s.Handler(w, r)
	return true
}
