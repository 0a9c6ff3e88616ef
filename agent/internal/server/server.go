// Package server is the agent's face: listeners, routes, the token check and
// the parts of the surface that need the whole (init, status, hold, shutdown).
//
// A Server lives from New to the end of Run. Everything it starts ends before
// Run returns.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/files"
	"tupper.dev/agent/internal/filesystem"
	"tupper.dev/agent/internal/process"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/sudo"
	"tupper.dev/agent/internal/supervise"
	"tupper.dev/agent/internal/tree"
	"tupper.dev/agent/internal/tunnel"
	"tupper.dev/agent/internal/watch"
)

// What the agent calls itself.
const (
	Version     = "0.1.0"
	Protocol    = 1
	EnvdVersion = "0.6.13"
)

// Server answers the host.
type Server struct {
	config    *settings.Config
	settings  *settings.Settings
	processes *process.Manager
	watches   *watch.Registry
	broker    *sudo.Broker
	log       *Ring
	etc       etc
	http      *httpd.Server
	meter     meter
	streams   atomic.Int64
	routes    map[string]httpd.HandlerFunc
	stop      chan stopRequest
	initLock  sync.Mutex // one /init at a time
	initTime  time.Time  // newest timestamp applied; guarded by initLock

	mu        sync.Mutex
	listeners []net.Listener
	held      *lease
	deadline  time.Time
	rearm     chan struct{}
	serving   sync.WaitGroup
}

type stopRequest struct {
	grace time.Duration
	why   string
}

// New builds a server. Run makes it answer.
func New(c *settings.Config, reaper *supervise.Reaper, shield *supervise.Shield, ring *Ring) *Server {
	s := &Server{
		config: c, settings: settings.New(c), log: ring,
		stop: make(chan stopRequest, 1), rearm: make(chan struct{}, 1),
	}
	if c.Deadline > 0 {
		s.deadline = unixTime(c.Deadline)
	}
	s.etc = etc{log: ring.Printf}
	s.processes = process.NewManager(s.settings, reaper, shield)
	s.watches = watch.NewRegistry(s.settings, ring.Printf)
	s.broker = sudo.NewBroker(s.settings, reaper, shield, ring.Printf)
	s.meter.start()
	s.routes = s.table()
	s.http = &httpd.Server{
		Handler:           s.route,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       640 * time.Second,
		MaxHeaderBytes:    64 << 10,
		Log:               ring.Printf,
	}
	return s
}

func (s *Server) table() map[string]httpd.HandlerFunc {
	f := files.New(s.settings, s.log.Printf)
	routes := map[string]httpd.HandlerFunc{
		"/files":         f.ServeHTTP,
		"/files/compose": f.Compose,
		"/health":        health,
		"/metrics":       s.metrics,
		"/envs":          s.envs,
		"/init":          s.init,

		"/tupper/status":   s.status,
		"/tupper/log":      s.logs,
		"/tupper/tunnel":   tunnel.Serve,
		"/tupper/ports":    tunnel.Ports,
		"/tupper/tree":     tree.New(s.settings).ServeHTTP,
		"/tupper/deadline": s.setDeadline,
		"/tupper/shutdown": s.shutdown,
		"/tupper/hold":     s.hold,
		"/tupper/release":  s.release,
		"/tupper/carry":    s.carry,
		"/tupper/identity": s.identity,
	}
	for _, part := range []map[string]httpd.HandlerFunc{
		s.processes.Routes(), s.watches.Routes(), filesystem.New(s.settings, s.watches.Sync).Routes(),
	} {
		for path, handler := range part {
			routes[path] = handler
		}
	}
	return routes
}

// post lists the plain routes that change something.
func post(path string) bool {
	switch path {
	case "/init", "/files/compose", "/tupper/deadline", "/tupper/shutdown", "/tupper/hold", "/tupper/release", "/tupper/identity", "/tupper/carry":
		return true
	}
	return strings.HasPrefix(path, "/process.") || strings.HasPrefix(path, "/filesystem.")
}

// route checks the token and finds the route.
func (s *Server) route(w httpd.ResponseWriter, r *httpd.Request) {
	cors(w.Header())
	if r.Method == httpd.MethodOptions {
		w.WriteHeader(httpd.StatusNoContent)
		return
	}
	path := r.URL.Path
	own := path == "/health" || path == "/files" || path == "/init"
	if !own && !s.settings.TokenMatches(r.Header.Get("X-Access-Token")) {
		files.Fail(w, httpd.StatusUnauthorized,
			"unauthorized access, please provide a valid access token or method signing if supported")
		return
	}
	handler := s.routes[path]
	switch {
	case handler == nil:
		files.Fail(w, httpd.StatusNotFound, "no such route: %s", path)
		return
	case post(path) && r.Method != httpd.MethodPost:
		w.Header().Set("Allow", httpd.MethodPost)
		files.Fail(w, httpd.StatusMethodNotAllowed, "%s wants POST", path)
		return
	}
	if path != "/health" && path != "/tupper/status" {
		s.settings.Touch()
		s.streams.Add(1)
		defer s.streams.Add(-1)
	}
	handler(w, r)
}

func cors(h httpd.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "*")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Expose-Headers", "*")
}

// furnish writes the guest's files and then lets commands start.
func (s *Server) furnish() {
	defer s.processes.Open()
	s.etc.write(s.config.Files)
	s.etc.trust(s.config.CABundle)
}

// Run answers until ctx ends or a shutdown is asked for, then ends the sandbox
// in order. It takes over what Open has opened, and returns what the end was for.
func (s *Server) Run(ctx context.Context, opened []net.Listener) string {
	s.serveAll(opened)
	work, cancel := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	if s.config.Sudo {
		helpers.Add(1)
		go func() {
			defer helpers.Done()
			s.broker.Run(work)
		}()
	}
	helpers.Add(2)
	go func() {
		defer helpers.Done()
		s.furnish()
	}()
	go func() {
		defer helpers.Done()
		s.watchDeadline(work)
	}()
	request := stopRequest{grace: 5 * time.Second, why: "signal"}
	select {
	case <-ctx.Done():
	case request = <-s.stop:
	}
	s.wind(request)
	cancel()
	helpers.Wait()
	return request.why
}

// Open opens all addresses. Clients can connect from then on, and wait for the
// first answer until Run.
func Open(c *settings.Config) ([]net.Listener, error) {
	if len(c.Listen) == 0 && c.Channel == nil {
		return nil, errors.New("the configuration names no address to listen on")
	}
	var opened []net.Listener
	if c.Channel != nil {
		l, err := c.Channel.Listen()
		if err != nil {
			return nil, err
		}
		opened = append(opened, l)
	}
	for _, address := range c.Listen {
		l, err := listen(address)
		if err != nil {
			closeAll(opened)
			return nil, err
		}
		opened = append(opened, l)
	}
	return opened, nil
}

func (s *Server) listenAll() error {
	opened, err := Open(s.config)
	if err != nil {
		return err
	}
	s.serveAll(opened)
	return nil
}

func (s *Server) serveAll(opened []net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range opened {
		s.listeners = append(s.listeners, l)
		s.serving.Add(1)
		go s.serve(l)
	}
	s.log.Printf("agent.listening addresses=%d", len(s.listeners))
}

func (s *Server) serve(l net.Listener) {
	defer s.serving.Done()
	if err := s.http.Serve(l); err != nil && !errors.Is(err, httpd.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.log.Printf("agent.serve_failed error=%q", err)
	}
}

// closeListeners wants mu held. A socket's name goes first: under gVisor the
// host's end of a closed listener can live on for minutes, and clients that
// find its name would wait in its backlog.
func (s *Server) closeListeners() {
	closeAll(s.listeners)
	s.listeners = nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		if address, ok := l.Addr().(*net.UnixAddr); ok {
			_ = os.Remove(address.Name)
		}
		_ = l.Close()
	}
}

// unixTime converts seconds with a fraction.
func unixTime(seconds float64) time.Time {
	return time.UnixMicro(int64(seconds * 1e6))
}

func decodeBody(r *httpd.Request, into any) error {
	if err := connect.DecodeJSON(r.Body, into); err != nil {
		return fmt.Errorf("cannot decode the request: %w", err)
	}
	return nil
}
