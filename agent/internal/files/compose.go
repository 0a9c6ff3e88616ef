package files

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/user"
)

type composeRequest struct {
	Sources     []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// Compose answers POST /files/compose: it concatenates files into one and
// deletes the parts.
func (s *Service) Compose(w httpd.ResponseWriter, r *httpd.Request) {
	var req composeRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&req); err != nil {
		Fail(w, httpd.StatusBadRequest, "cannot decode the request: %v", err)
		return
	}
	account, err := s.settings.Account(req.Username)
	if err != nil {
		Fail(w, httpd.StatusUnauthorized, "error looking up user '%s': %v", req.Username, err)
		return
	}
	done, err := s.compose(account, &req)
	if err != nil {
		s.report(w, err)
		return
	}
	connect.WriteJSON(w, httpd.StatusOK, done)
}

func (s *Service) compose(account *user.Account, req *composeRequest) (*written, error) {
	if len(req.Sources) == 0 || req.Destination == "" {
		return nil, failf(httpd.StatusBadRequest, "source_paths and destination are required")
	}
	target, err := s.path(account, req.Destination)
	if err != nil {
		return nil, err
	}
	var readers []io.Reader
	var paths []string
	for _, source := range req.Sources {
		path, err := s.path(account, source)
		if err != nil {
			return nil, err
		}
		if path == target {
			return nil, failf(httpd.StatusBadRequest, "'%s' is a source and the destination", settings.Escape(path))
		}
		file, _, err := openRegular(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		readers, paths = append(readers, file), append(paths, path)
	}
	if err := s.store(account, target, io.MultiReader(readers...)); err != nil {
		return nil, err
	}
	for _, path := range paths {
		_ = os.Remove(path)
	}
	return &written{Path: settings.Escape(target), Name: settings.Escape(filepath.Base(target)), Type: "file"}, nil
}
