package filesystem

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/user"
)

// Service is filesystem.Filesystem without the watches.
type Service struct {
	settings *settings.Settings
	changed  func() // called after directories were made, before the answer
}

// New makes the service. changed lets watches catch up with new directories
// before a client hears of them.
func New(s *settings.Settings, changed func()) *Service {
	return &Service{settings: s, changed: changed}
}

// Routes returns the handlers by path.
func (s *Service) Routes() map[string]httpd.HandlerFunc {
	const p = "/filesystem.Filesystem/"
	return map[string]httpd.HandlerFunc{
		p + "Stat":    connect.Unary(s.stat),
		p + "MakeDir": connect.Unary(s.makeDir),
		p + "Move":    connect.Unary(s.move),
		p + "ListDir": connect.Unary(s.listDir),
		p + "Remove":  connect.Unary(s.remove),
	}
}

type pathRequest struct {
	Path string `json:"path"`
}

type moveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

type listRequest struct {
	Path  string         `json:"path"`
	Depth connect.Number `json:"depth"`
}

type entryAnswer struct {
	Entry *Entry `json:"entry"`
}

func (s *Service) resolve(r *httpd.Request, path string) (*user.Account, string, error) {
	account, err := s.settings.RequestUser(r)
	if err != nil {
		return nil, "", err
	}
	full, err := s.settings.Path(account, path)
	return account, full, err
}

func (s *Service) answer(path string) (any, error) {
	e, err := Describe(s.settings.Users, path)
	if err != nil {
		return nil, Problem(err, path)
	}
	return entryAnswer{Entry: e}, nil
}

func (s *Service) stat(_ context.Context, r *httpd.Request, req *pathRequest) (any, error) {
	_, path, err := s.resolve(r, req.Path)
	if err != nil {
		return nil, err
	}
	return s.answer(path)
}

func (s *Service) makeDir(_ context.Context, r *httpd.Request, req *pathRequest) (any, error) {
	account, path, err := s.resolve(r, req.Path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, connect.Errorf(connect.AlreadyExists, "directory already exists: '%s'", settings.Escape(path))
	case err == nil:
		return nil, connect.Errorf(connect.InvalidArgument, "path already exists but it is not a directory: '%s'", settings.Escape(path))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, Problem(err, path)
	}
	if err := MakeParents(account, path, true); err != nil {
		return nil, Problem(err, path)
	}
	s.changed()
	return s.answer(path)
}

func (s *Service) move(_ context.Context, r *httpd.Request, req *moveRequest) (any, error) {
	account, source, err := s.resolve(r, req.Source)
	if err != nil {
		return nil, err
	}
	_, target, err := s.resolve(r, req.Destination)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(source); err != nil {
		return nil, Problem(err, source)
	}
	if err := MakeParents(account, target, false); err != nil {
		return nil, Problem(err, target)
	}
	if err := syscall.Rename(source, target); err != nil {
		if errors.Is(err, syscall.EXDEV) {
			return nil, connect.Errorf(connect.InvalidArgument, "'%s' and '%s' are on different file systems",
				settings.Escape(source), settings.Escape(target))
		}
		return nil, Problem(err, target)
	}
	s.changed()
	return s.answer(target)
}

func (s *Service) remove(_ context.Context, r *httpd.Request, req *pathRequest) (any, error) {
	_, path, err := s.resolve(r, req.Path)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Problem(err, path)
	}
	return nil, nil
}

func (s *Service) listDir(ctx context.Context, r *httpd.Request, req *listRequest) (any, error) {
	_, path, err := s.resolve(r, req.Path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, Problem(err, path)
	}
	if !info.IsDir() {
		return nil, connect.Errorf(connect.InvalidArgument, "path is not a directory: '%s'", settings.Escape(path))
	}
	l := &lister{ctx: ctx, users: s.settings.Users, entries: []*Entry{}}
	if err := l.walk(path, max(1, int(req.Depth))); err != nil {
		return nil, Problem(err, path)
	}
	return struct {
		Entries []*Entry `json:"entries"`
	}{l.entries}, nil
}

type lister struct {
	ctx     context.Context
	users   *user.Database
	entries []*Entry
}

// walk lists a directory in lexical order, a directory before its content.
// What vanishes meanwhile is left out. Links are not followed.
func (l *lister) walk(dir string, depth int) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range names {
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		path := filepath.Join(dir, d.Name())
		e, err := Describe(l.users, path)
		if err != nil {
			continue
		}
		l.entries = append(l.entries, e)
		if depth > 1 && d.IsDir() {
			_ = l.walk(path, depth-1) // unreadable below the root: listed without content
		}
	}
	return nil
}
