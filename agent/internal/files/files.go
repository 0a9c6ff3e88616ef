// Package files serves /files: whole files up and down as HTTP bodies, with
// signed URLs, ranges, gzip and metadata.
//
// A download streams until the end of the file, whatever stat says of its
// size, so /proc and /sys can be read. An upload goes straight to its place
// (create, chown, write, nothing else: watchers count the events); if it fails
// half-way, a file that was not there before is removed again.
package files

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/filesystem"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/user"
)

// Service is the handler of /files and /files/compose.
type Service struct {
	settings *settings.Settings
	buffers  sync.Pool
	log      func(format string, args ...any)
}

const bufferSize = 256 << 10

// New makes the service.
func New(s *settings.Settings, log func(string, ...any)) *Service {
	return &Service{settings: s, log: log, buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

// ServeHTTP answers GET, HEAD and POST /files. It checks the token itself.
func (s *Service) ServeHTTP(w httpd.ResponseWriter, r *httpd.Request) {
	operation := "read"
	switch r.Method {
	case httpd.MethodGet, httpd.MethodHead:
	case httpd.MethodPost:
		operation = "write"
	default:
		Fail(w, httpd.StatusMethodNotAllowed, "method %s is not supported", r.Method)
		return
	}
	if reason := s.authorize(r, operation); reason != "" {
		Fail(w, httpd.StatusUnauthorized, "%s", reason)
		return
	}
	name := r.URL.Query().Get("username")
	account, err := s.settings.Account(name)
	if err != nil {
		Fail(w, httpd.StatusUnauthorized, "error looking up user '%s': %v", name, err)
		return
	}
	if operation == "read" {
		s.download(w, r, account)
		return
	}
	s.upload(w, r, account)
}

// Fail answers with the error object of plain HTTP routes.
func Fail(w httpd.ResponseWriter, status int, format string, args ...any) {
	connect.WriteJSON(w, status, map[string]any{"code": status, "message": fmt.Sprintf(format, args...)})
}

// failure is an error with an HTTP status.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

func failf(status int, format string, args ...any) error {
	return &failure{status: status, text: fmt.Sprintf(format, args...)}
}

// report answers with the status that fits the error.
func (s *Service) report(w httpd.ResponseWriter, err error) {
	var f *failure
	var c *connect.Error
	switch {
	case errors.As(err, &f):
		if f.status == httpd.StatusInsufficientStorage {
			s.settings.NoteLimit("disk")
		}
		Fail(w, f.status, "%s", f.text)
	case errors.As(err, &c):
		Fail(w, c.Code.Status(), "%s", c.Message)
	default:
		Fail(w, httpd.StatusInternalServerError, "%v", err)
	}
}

// problem gives an error of a system call its HTTP status.
func problem(err error, path string) error {
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return failf(httpd.StatusInsufficientStorage, "not enough disk space for '%s'", settings.Escape(path))
	}
	return filesystem.Problem(err, path)
}

// openRegular opens a regular file; FIFOs and devices are refused before they
// can block.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, problem(err, path)
	}
	if err := mustBeRegular(info, path); err != nil {
		return nil, nil, err
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, problem(err, path)
	}
	_ = syscall.SetNonblock(fd, false)
	file := os.NewFile(uintptr(fd), path)
	if info, err = file.Stat(); err == nil {
		err = mustBeRegular(info, path)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, problem(err, path)
	}
	return file, info, nil
}

func mustBeRegular(info os.FileInfo, path string) error {
	if info.IsDir() {
		return failf(httpd.StatusBadRequest, "path '%s' is a directory", settings.Escape(path))
	}
	if !info.Mode().IsRegular() {
		return failf(httpd.StatusBadRequest, "path '%s' is not a regular file", settings.Escape(path))
	}
	return nil
}

func (s *Service) path(account *user.Account, path string) (string, error) {
	return s.settings.Path(account, path)
}
