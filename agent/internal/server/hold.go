package server

import (
	"os"
	"path/filepath"
	"strings"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/files"
)

const (
	// leaseTime is how long a hold lasts when nobody releases it.
	leaseTime = 5 * time.Second
	// maxLease is the longest that can be asked for.
	maxLease = 60 * time.Second
	// releaseFile, beside the agent's socket, ends a hold: while nothing
	// listens, it is the only word that the host can leave.
	releaseFile = "release"
	// lookEvery is how often a held agent looks for it. Only then does an
	// agent ever poll.
	lookEvery = 2 * time.Millisecond
)

// lease is a hold in force. Its timer belongs to the runtime; Release and the
// timer race for the pointer under Server.mu, and only one of them wins.
type lease struct {
	timer  *time.Timer
	closed bool // the listeners were closed
}

// hold prepares for a snapshot: outputs keep all they get (up to their bound,
// then the command waits), time limits stand still, the sandbox's own deadline
// is forgotten (the host tells it again, since in a copy it would be another
// one's), and listeners and connections are closed, unless the request says
// {"close":false}. The answer, and the end of its connection, come when all
// that is done.
//
// A held agent listens again when its host has put a file "release" beside the
// socket, on SIGUSR1, on /tupper/release where a connection is left for that,
// or when its lease of 5 s (or leaseMs) is over.
func (s *Server) hold(w httpd.ResponseWriter, r *httpd.Request) {
	req := struct {
		Close   *bool `json:"close"`
		LeaseMs int   `json:"leaseMs"`
	}{}
	if err := decodeBody(r, &req); err != nil {
		files.Fail(w, httpd.StatusBadRequest, "%v", err)
		return
	}
	term := leaseTime
	if req.LeaseMs > 0 && req.LeaseMs <= int(maxLease/time.Millisecond) {
		term = time.Duration(req.LeaseMs) * time.Millisecond
	}
	l := &lease{closed: req.Close == nil || *req.Close}
	s.mu.Lock()
	if s.held != nil {
		s.held.timer.Stop()
		l.closed = l.closed || s.held.closed
	}
	s.held = l
	s.deadline = time.Time{}
	l.timer = time.AfterFunc(term, func() { s.endHold(l, "lease") })
	s.mu.Unlock()
	s.wakeDeadline()
	s.processes.Hold(true)
	s.log.Printf("hold.begin lease_ms=%d close=%t", term.Milliseconds(), l.closed)
	w.Header().Set("Connection", "close")
	if l.closed {
		for _, path := range s.releasePaths() {
			_ = os.Remove(path) // of an earlier hold
		}
		s.closeAll(w)
		go s.watchRelease(l)
	}
	connect.WriteJSON(w, httpd.StatusOK, map[string]any{"leaseMs": term.Milliseconds()})
	_ = httpd.NewResponseController(w).Flush()
	if conn, _, err := httpd.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close() // at once: nobody lingers on it
	}
}

// closeAll closes listeners and all connections but the one of the request.
func (s *Server) closeAll(w httpd.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeListeners()
	s.http.DisconnectBut(w)
}

// releasePaths are the places where the host may leave the file.
func (s *Server) releasePaths() []string {
	var paths []string
	for _, address := range s.config.Listen {
		if socket, ok := strings.CutPrefix(address, "unix:"); ok {
			paths = append(paths, filepath.Join(filepath.Dir(socket), releaseFile))
		}
	}
	return paths
}

// watchRelease ends the hold when the host's file is there. It ends with the
// hold, which its lease bounds.
func (s *Server) watchRelease(l *lease) {
	paths := s.releasePaths()
	for len(paths) > 0 {
		time.Sleep(lookEvery)
		s.mu.Lock()
		over := s.held != l
		s.mu.Unlock()
		if over {
			return
		}
		for _, path := range paths {
			if _, err := os.Lstat(path); err == nil {
				_ = os.Remove(path)
				s.endHold(l, "file")
				return
			}
		}
	}
}

// carry continues a connection that a hold has parked.
func (s *Server) carry(w httpd.ResponseWriter, r *httpd.Request) {
	if !s.http.Continue(w, r.Header.Get(httpd.CarryHeader)) {
		files.Fail(w, httpd.StatusNotFound, "there is no such connection")
	}
}

func (s *Server) release(w httpd.ResponseWriter, _ *httpd.Request) {
	s.Release()
	w.WriteHeader(httpd.StatusNoContent)
}

// Release ends a hold, if there is one.
func (s *Server) Release() {
	s.mu.Lock()
	l := s.held
	s.mu.Unlock()
	if l != nil {
		s.endHold(l, "release")
	}
}

func (s *Server) endHold(l *lease, why string) {
	s.mu.Lock()
	if s.held != l {
		s.mu.Unlock()
		return
	}
	s.held = nil
	l.timer.Stop()
	s.mu.Unlock()
	s.processes.Hold(false)
	s.log.Printf("hold.end why=%s", why)
	if !l.closed {
		return
	}
	if err := s.listenAll(); err != nil {
		s.log.Printf("hold.listen_failed error=%q", err)
		s.requestStop(stopRequest{grace: time.Second, why: "cannot listen again"})
	}
}
