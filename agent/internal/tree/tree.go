// Package tree moves whole directories as tar streams.
//
// Unpacking resolves every name below the target with os.Root, that is with
// openat and without ever leaving it, so neither "..", nor an absolute name,
// nor a link planted earlier in the same archive reaches anything else.
package tree

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/filesystem"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/user"
)

// Service is the handler of /tupper/tree.
type Service struct{ settings *settings.Settings }

// New makes the service.
func New(s *settings.Settings) *Service { return &Service{settings: s} }

// ServeHTTP answers GET (pack) and POST (unpack).
func (s *Service) ServeHTTP(w httpd.ResponseWriter, r *httpd.Request) {
	q := r.URL.Query()
	account, err := s.settings.Account(q.Get("username"))
	if err != nil {
		fail(w, httpd.StatusUnauthorized, err.Error())
		return
	}
	path, err := s.settings.Path(account, q.Get("path"))
	if err != nil {
		s.report(w, err, "")
		return
	}
	switch r.Method {
	case httpd.MethodGet:
		s.pack(w, r, path)
	case httpd.MethodPost:
		s.unpack(w, r, account, path)
	default:
		fail(w, httpd.StatusMethodNotAllowed, "method "+r.Method+" is not supported")
	}
}

func fail(w httpd.ResponseWriter, status int, message string) {
	connect.WriteJSON(w, status, map[string]any{"code": status, "message": message})
}

// badArchive says that the client's tar stream cannot be used.
type badArchive struct{ err error }

func (b *badArchive) Error() string { return fmt.Sprintf("bad archive: %v", b.err) }

func (s *Service) report(w httpd.ResponseWriter, err error, path string) {
	var bad *badArchive
	var coded *connect.Error
	switch {
	case errors.As(err, &bad):
		fail(w, httpd.StatusBadRequest, bad.Error())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		s.settings.NoteLimit("disk")
		fail(w, httpd.StatusInsufficientStorage, fmt.Sprintf("not enough disk space below '%s'", settings.Escape(path)))
	case errors.As(filesystem.Problem(err, path), &coded):
		fail(w, coded.Code.Status(), coded.Message)
	default:
		fail(w, httpd.StatusInternalServerError, err.Error())
	}
}

func owner(account *user.Account) (uid, gid int) {
	if os.Getuid() != 0 {
		return -1, -1
	}
	return int(account.UID), int(account.GID)
}
