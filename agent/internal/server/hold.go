package server

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/files"
	"tupper.dev/agent/internal/supervise"
)

const (
	// leaseTime is how long a hold lasts when nobody releases it.
	leaseTime = 5 * time.Second
	// maxLease is the longest that can be asked for.
	maxLease = 60 * time.Second
	// releaseFile, beside the agent's socket, ends a hold: while nothing
	// listens, it is the only word that the host can leave.
	releaseFile = "release"
	// rebootFile does so too, after everything else that runs is ended: of a
	// saved machine only the files are wanted.
	rebootFile = "reboot"
	// rebootLimit is how long it may take to end everything.
	rebootLimit = 10 * time.Second
	// lookEvery is how often a held agent looks for it. Only then does an
	// agent ever poll.
	lookEvery = 2 * time.Millisecond
)

// lease is a hold in force. Its timer belongs to the runtime; Release and the
// timer race for the pointer under Server.mu, and only one of them wins.
type lease struct {
	timer   *time.Timer
	closed  bool // the listeners were closed
	stopped bool // everything else that runs was stopped
}

// hold prepares for a snapshot: outputs keep all they get (up to their bound,
// then the command waits), time limits stand still, the sandbox's own deadline
// is forgotten (the host tells it again, since in a copy it would be another
// one's), and listeners and connections are closed, unless the request says
// {"close":false}. With {"stop":true} everything else that runs is stopped: a
// copy that wants files only shall not have what it did afterwards. The answer,
// and the end of its connection, come when all that is done.
//
// A held agent listens again when its host has put a file "release" or "reboot"
// beside the socket, on SIGUSR1, on /tupper/release where a connection is left for that,
// or when its lease of 5 s (or leaseMs) is over.
func (s *Server) hold(w httpd.ResponseWriter, r *httpd.Request) {
	req := struct {
		Close   *bool `json:"close"`
		LeaseMs int   `json:"leaseMs"`
		Stop    bool  `json:"stop"`
	}{}
	if err := decodeBody(r, &req); err != nil {
		files.Fail(w, httpd.StatusBadRequest, "%v", err)
		return
	}
	term := leaseTime
	if req.LeaseMs > 0 && req.LeaseMs <= int(maxLease/time.Millisecond) {
		term = time.Duration(req.LeaseMs) * time.Millisecond
	}
	l := &lease{closed: req.Close == nil || *req.Close, stopped: req.Stop}
	s.mu.Lock()
	if s.held != nil {
		s.held.timer.Stop()
		l.closed = l.closed || s.held.closed
		l.stopped = l.stopped || s.held.stopped
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
		_ = s.takeFile(releaseFile) // of an earlier hold
		_ = s.takeFile(rebootFile)
		s.closeAll(w)
		go s.watchRelease(l)
	}
	if l.stopped {
		s.signalRest(syscall.SIGSTOP)
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

// takeFile says whether the host has left a file, and removes it.
func (s *Server) takeFile(name string) bool {
	found := false
	for _, address := range s.config.Listen {
		if socket, ok := strings.CutPrefix(address, "unix:"); ok {
			path := filepath.Join(filepath.Dir(socket), name)
			if _, err := os.Lstat(path); err == nil {
				_ = os.Remove(path)
				found = true
			}
		}
	}
	return found
}

// watchRelease ends the hold when the host's file is there. It ends with the
// hold, which its lease bounds.
func (s *Server) watchRelease(l *lease) {
	for {
		time.Sleep(lookEvery)
		s.mu.Lock()
		over := s.held != l
		s.mu.Unlock()
		if over {
			return
		}
		if s.takeFile(releaseFile) {
			s.endHold(l, "file")
			return
		}
		if s.takeFile(rebootFile) {
			s.endHold(l, rebootFile)
			return
		}
	}
}

// reboot ends everything but the agent, and empties what a boot finds empty.
func (s *Server) reboot() {
	for end := time.Now().Add(rebootLimit); time.Now().Before(end) && len(supervise.Others()) > 0; {
		s.signalRest(syscall.SIGKILL)
		time.Sleep(time.Millisecond)
	}
	entries, _ := os.ReadDir("/dev/shm")
	for _, entry := range entries {
		_ = os.RemoveAll(filepath.Join("/dev/shm", entry.Name()))
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
func (s *Server) Release() { s.releaseFor("release") }

// Restart ends a hold, and with it everything else that runs.
func (s *Server) Restart() { s.releaseFor(rebootFile) }

func (s *Server) releaseFor(why string) {
	s.mu.Lock()
	l := s.held
	s.mu.Unlock()
	if l != nil {
		s.endHold(l, why)
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
	// After a restore the lease may be over before anybody has looked.
	if s.config.Init && (why == rebootFile || s.takeFile(rebootFile)) {
		why = rebootFile
		s.reboot()
	} else if l.stopped {
		s.signalRest(syscall.SIGCONT)
	}
	s.processes.Hold(false)
	for end := time.Now().Add(rebootLimit); why == rebootFile && s.processes.Count() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // until their ends are known too
	}
	s.log.Printf("hold.end why=%s", why)
	if !l.closed {
		return
	}
	if err := s.listenAll(); err != nil {
		s.log.Printf("hold.listen_failed error=%q", err)
		s.requestStop(stopRequest{grace: time.Second, why: "cannot listen again"})
	}
}
