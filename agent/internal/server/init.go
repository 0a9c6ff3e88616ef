package server

import (
	"syscall"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/files"
)

func health(w httpd.ResponseWriter, _ *httpd.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(httpd.StatusNoContent)
}

func (s *Server) envs(w httpd.ResponseWriter, _ *httpd.Request) {
	connect.WriteJSON(w, httpd.StatusOK, s.settings.Env())
}

type initRequest struct {
	EnvVars        map[string]string `json:"envVars"`
	AccessToken    string            `json:"accessToken"`
	Timestamp      *time.Time        `json:"timestamp"`
	DefaultUser    string            `json:"defaultUser"`
	DefaultWorkdir string            `json:"defaultWorkdir"`
	CABundle       string            `json:"caBundle"`
}

// init answers POST /init with the semantics of envd: a request must show the
// token that is set, an older timestamp is ignored, an absent token clears.
func (s *Server) init(w httpd.ResponseWriter, r *httpd.Request) {
	var req initRequest
	if err := decodeBody(r, &req); err != nil {
		files.Fail(w, httpd.StatusBadRequest, "%v", err)
		return
	}
	s.initLock.Lock()
	defer s.initLock.Unlock()
	header := r.Header.Get("X-Access-Token")
	if !s.settings.TokenMatches(req.AccessToken) && !s.settings.TokenMatches(header) {
		files.Fail(w, httpd.StatusUnauthorized, "access token validation failed")
		return
	}
	w.Header().Set("X-Envd-Version", EnvdVersion)
	if req.Timestamp != nil {
		if req.Timestamp.Before(s.initTime) {
			w.WriteHeader(httpd.StatusNoContent)
			return
		}
		s.initTime = *req.Timestamp
		s.correctClock(*req.Timestamp)
	}
	s.settings.Init(req.AccessToken, req.EnvVars, req.DefaultUser, req.DefaultWorkdir)
	s.etc.trust(req.CABundle)
	w.WriteHeader(httpd.StatusNoContent)
}

// correctClock steps the clock if it is more than 50 ms behind or 5 s ahead.
// Not being permitted to is no error: a guest whose clock is its host's does
// not need it.
func (s *Server) correctClock(now time.Time) {
	ahead := time.Until(now)
	if ahead <= 50*time.Millisecond && ahead >= -5*time.Second {
		return
	}
	tv := syscall.NsecToTimeval(now.UnixNano())
	if err := syscall.Settimeofday(&tv); err != nil {
		s.log.Printf("clock.step_refused difference_ms=%d error=%q", ahead.Milliseconds(), err)
		return
	}
	s.log.Printf("clock.stepped difference_ms=%d", ahead.Milliseconds())
	s.wakeDeadline()
}
