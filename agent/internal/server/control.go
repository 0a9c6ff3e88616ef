package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/entropy"
	"tupper.dev/agent/internal/files"
	"tupper.dev/agent/internal/httpd"
	"tupper.dev/agent/internal/supervise"
)

// overdue is how long after the deadline the agent ends the sandbox itself.
const overdue = 60 * time.Second

func (s *Server) status(w httpd.ResponseWriter, _ *httpd.Request) {
	s.mu.Lock()
	held := s.held != nil
	s.mu.Unlock()
	connect.WriteJSON(w, httpd.StatusOK, map[string]any{
		"version": Version, "protocol": Protocol, "envdVersion": EnvdVersion,
		"sandboxId": s.settings.SandboxID(), "startedAt": s.settings.StartedAt.UnixMilli(),
		"lastActivity": s.settings.LastActivity(), "activeStreams": s.streams.Load(),
		"processes": s.processes.Count(), "held": held, "limitsHit": s.settings.LimitsHit(),
		"goroutines": runtime.NumGoroutine(),
	})
}

func (s *Server) logs(w httpd.ResponseWriter, _ *httpd.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s.log.CopyTo(w)
}

func (s *Server) setDeadline(w httpd.ResponseWriter, r *httpd.Request) {
	var req struct {
		Deadline float64 `json:"deadline"`
	}
	if err := decodeBody(r, &req); err != nil {
		files.Fail(w, httpd.StatusBadRequest, "%v", err)
		return
	}
	s.mu.Lock()
	s.deadline = time.Time{}
	if req.Deadline > 0 {
		s.deadline = unixTime(req.Deadline)
	}
	s.mu.Unlock()
	s.wakeDeadline()
	w.WriteHeader(httpd.StatusNoContent)
}

func (s *Server) wakeDeadline() {
	select {
	case s.rearm <- struct{}{}:
	default:
	}
}

// watchDeadline ends the sandbox a minute after its deadline, if the host,
// whose task it is, did not.
func (s *Server) watchDeadline(ctx context.Context) {
	for {
		s.mu.Lock()
		deadline := s.deadline
		s.mu.Unlock()
		var due <-chan time.Time
		if !deadline.IsZero() {
			// Round(0) drops the monotonic reading: the wall clock decides.
			left := deadline.Add(overdue).Sub(time.Now().Round(0))
			timer := time.NewTimer(max(left, 0))
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-due:
			s.requestStop(stopRequest{grace: time.Second, why: "deadline"})
			return
		case <-s.rearm:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) requestStop(req stopRequest) {
	select {
	case s.stop <- req:
	default:
	}
}

func (s *Server) shutdown(w httpd.ResponseWriter, r *httpd.Request) {
	var req struct {
		GraceMs int `json:"graceMs"`
	}
	if err := decodeBody(r, &req); err != nil {
		files.Fail(w, httpd.StatusBadRequest, "%v", err)
		return
	}
	w.WriteHeader(httpd.StatusNoContent)
	_ = httpd.NewResponseController(w).Flush()
	s.requestStop(stopRequest{grace: time.Duration(max(0, min(req.GraceMs, 600_000))) * time.Millisecond, why: "request"})
}

// wind ends everything: no new commands, SIGTERM, the grace, SIGKILL, sync,
// then the connections.
func (s *Server) wind(req stopRequest) {
	s.log.Printf("agent.shutdown why=%s grace_ms=%d", req.why, req.grace.Milliseconds())
	s.processes.Refuse()
	over := make(chan struct{})
	go func() {
		s.processes.Wait()
		close(over)
	}()
	for _, p := range s.processes.List() {
		_ = syscall.Kill(-p.PID, syscall.SIGTERM)
	}
	s.signalRest(syscall.SIGTERM)
	timer := time.NewTimer(req.grace)
	select {
	case <-over:
	case <-timer.C:
	}
	timer.Stop()
	for _, p := range s.processes.List() {
		p.Kill(context.Background(), "")
	}
	s.signalRest(syscall.SIGKILL)
	timer.Reset(2 * time.Second)
	select {
	case <-over:
	case <-timer.C:
	}
	timer.Stop()
	syscall.Sync()
	s.watches.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	s.http.Shutdown(ctx)
	s.serving.Wait()
}

// signalRest reaches what no command leads to. Only PID 1 may do that: in any
// other place the process table is not ours.
func (s *Server) signalRest(sig syscall.Signal) {
	if !s.config.Init || os.Getpid() != 1 {
		return
	}
	for _, pid := range supervise.Others() {
		_ = syscall.Kill(pid, sig)
	}
}

type identityRequest struct {
	Hostname    string  `json:"hostname"`
	AccessToken string  `json:"accessToken"`
	SandboxID   string  `json:"sandboxId"`
	Seed        string  `json:"seed"`
	Time        int64   `json:"time"` // unix ns
	MachineID   string  `json:"machineId"`
	Deadline    float64 `json:"deadline"`
	// Texts that have changed, by the path of the file that they stand in.
	Texts map[string]replacement `json:"texts"`
}

// replacement is a text and what takes its place.
type replacement struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// apply replaces the text in a file and leaves the rest of it as the user has
// it; a file without the text, or no file, is the user's own business.
func (r replacement) apply(path string) error {
	have, err := os.ReadFile(path)
	if err != nil || r.Old == "" || r.Old == r.New || !strings.Contains(string(have), r.Old) {
		return nil
	}
	return os.WriteFile(path, []byte(strings.Replace(string(have), r.Old, r.New, 1)), 0o644)
}

// identity makes a restored sandbox itself again, or a fork somebody else. The
// caller shows the old token; the new one counts from the answer on.
func (s *Server) identity(w httpd.ResponseWriter, r *httpd.Request) {
	var req identityRequest
	if err := decodeBody(r, &req); err != nil {
		files.Fail(w, httpd.StatusBadRequest, "%v", err)
		return
	}
	if req.Time > 0 {
		s.correctClock(time.Unix(0, req.Time))
	}
	var problems []string
	note := func(what string, err error) {
		if err != nil {
			problems = append(problems, what+": "+err.Error())
		}
	}
	if req.Seed != "" {
		note("seed", reseed(req.Seed))
	}
	if req.Hostname != "" {
		note("hostname", SetHostname(req.Hostname))
	}
	if req.MachineID != "" {
		note("machineId", os.WriteFile("/etc/machine-id", []byte(strings.TrimSpace(req.MachineID)+"\n"), 0o444))
	}
	for path, text := range req.Texts {
		note(path, text.apply(path))
	}
	if req.Deadline > 0 {
		s.mu.Lock()
		s.deadline = unixTime(req.Deadline)
		s.mu.Unlock()
		s.wakeDeadline()
	}
	s.settings.SetIdentity(req.SandboxID, req.AccessToken)
	s.http.DropParked()
	for _, p := range problems {
		s.log.Printf("identity.incomplete problem=%q", p)
	}
	connect.WriteJSON(w, httpd.StatusOK, map[string]any{"problems": append([]string{}, problems...)})
}

// reseed makes the kernel's random numbers depend on the host's bytes.
func reseed(seed string) error {
	raw, err := base64.StdEncoding.DecodeString(seed)
	if err != nil {
		return err
	}
	var own [32]byte
	_, _ = rand.Read(own[:])
	return entropy.Add(append(raw, own[:]...))
}

// SetHostname sets the kernel's name and /etc/hostname, best effort. Where the
// agent may not, its host may have done it already.
func SetHostname(name string) error {
	err := syscall.Sethostname([]byte(name))
	if have, _ := os.Hostname(); have == name {
		err = nil
	}
	if werr := os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644); err == nil {
		err = werr
	}
	return err
}
