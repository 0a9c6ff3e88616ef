package server

import (
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/files"
)

// leaseTime is how long a hold lasts when nobody releases it.
const leaseTime = 5 * time.Second

// lease is a hold in force. Its timer belongs to the runtime; Release and the
// timer race for the pointer under Server.mu, and only one of them wins.
type lease struct {
	timer  *time.Timer
	closed bool // the listeners were closed
}

// hold prepares for a snapshot: outputs keep all they get (up to their bound,
// then the command waits), and after the answer the listeners and all
// connections are closed, unless the request says {"close":false}. A held
// agent listens again by itself when the lease of 5 s (or leaseMs) is over, on
// SIGUSR1, or on /tupper/release where a connection is left for that.
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
	if req.LeaseMs > 0 && req.LeaseMs < int(leaseTime/time.Millisecond) {
		term = time.Duration(req.LeaseMs) * time.Millisecond
	}
	l := &lease{closed: req.Close == nil || *req.Close}
	s.mu.Lock()
	if s.held != nil {
		s.held.timer.Stop()
		l.closed = l.closed || s.held.closed
	}
	s.held = l
	l.timer = time.AfterFunc(term, func() { s.endHold(l, "lease") })
	s.mu.Unlock()
	s.processes.Hold(true)
	s.log.Printf("hold.begin lease_ms=%d close=%t", term.Milliseconds(), l.closed)
	w.Header().Set("Connection", "close")
	connect.WriteJSON(w, httpd.StatusOK, map[string]any{"leaseMs": term.Milliseconds()})
	_ = httpd.NewResponseController(w).Flush()
	if l.closed {
		s.closeAll(w)
	}
}

// closeAll gives up the connection of the request first, so that its answer
// is complete, and then everything else.
func (s *Server) closeAll(w httpd.ResponseWriter) {
	if conn, _, err := httpd.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeListeners()
	s.http.Disconnect()
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
