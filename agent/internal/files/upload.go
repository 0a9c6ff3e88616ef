package files

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"os"
	"path/filepath"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/filesystem"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/user"
)

type written struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload reads a request of either content type.
func (s *Service) upload(w httpd.ResponseWriter, r *httpd.Request, account *user.Account) {
	meta, err := parseMetadata(r.Header)
	if err != nil {
		s.report(w, err)
		return
	}
	body, err := decoded(w, r)
	if err != nil {
		s.report(w, err)
		return
	}
	u := &uploader{service: s, account: account, meta: meta, seen: map[string]bool{}, done: []written{}}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	target := r.URL.Query().Get("path")
	switch kind {
	case "multipart/form-data":
		err = u.parts(multipart.NewReader(body, params["boundary"]), target)
	case "application/octet-stream":
		if target == "" {
			err = failf(httpd.StatusBadRequest, "path is required for application/octet-stream")
		} else {
			err = u.put(target, body)
		}
	default:
		err = failf(httpd.StatusBadRequest, "unsupported content type '%s'", r.Header.Get("Content-Type"))
	}
	if err != nil {
		s.log("files.upload_failed error=%q", err)
		s.report(w, err)
		return
	}
	connect.WriteJSON(w, httpd.StatusOK, u.done)
}

// decoded undoes Content-Encoding and gives every read a time limit.
func decoded(w httpd.ResponseWriter, r *httpd.Request) (io.Reader, error) {
	body := httpd.NewSteady(r.Body, httpd.NewResponseController(w))
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, failf(httpd.StatusBadRequest, "the body is not gzip: %v", err)
		}
		return z, nil
	}
	return nil, failf(httpd.StatusBadRequest, "unsupported content encoding '%s'", r.Header.Get("Content-Encoding"))
}

type uploader struct {
	service *Service
	account *user.Account
	meta    map[string]string
	seen    map[string]bool
	done    []written
}

// parts handles multipart bodies: only parts named "file" count.
func (u *uploader) parts(reader *multipart.Reader, target string) error {
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failf(httpd.StatusBadRequest, "cannot read the multipart body: %v", err)
		}
		name, filename := disposition(part.Header.Get("Content-Disposition"))
		if name != "file" {
			continue
		}
		path := target
		if path == "" {
			path = filename
		}
		if path == "" {
			return failf(httpd.StatusBadRequest, "a part has no file name")
		}
		if err := u.put(path, part); err != nil {
			return err
		}
	}
}

// put writes one file.
func (u *uploader) put(path string, body io.Reader) error {
	full, err := u.service.path(u.account, path)
	if err != nil {
		return err
	}
	if u.seen[full] {
		return failf(httpd.StatusBadRequest, "you cannot upload multiple files to the same path: '%s'", settings.Escape(full))
	}
	u.seen[full] = true
	if err := u.service.store(u.account, full, body); err != nil {
		return err
	}
	meta := u.service.setMetadata(full, u.meta)
	u.done = append(u.done, written{
		Path: settings.Escape(full), Name: settings.Escape(filepath.Base(full)), Type: "file", Metadata: meta,
	})
	return nil
}

// store creates or truncates the file, gives it to the account and fills it.
// A new file that cannot be filled is removed.
func (s *Service) store(account *user.Account, path string, body io.Reader) error {
	if err := filesystem.MakeParents(account, path, false); err != nil {
		return problem(err, path)
	}
	file, created, err := create(account, path)
	if err != nil {
		return err
	}
	buf := s.buffers.Get().(*[bufferSize]byte)
	defer s.buffers.Put(buf)
	err = fill(file, body, buf[:])
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		return nil
	}
	if created {
		_ = os.Remove(path)
	}
	var broken *bodyError
	if errors.As(err, &broken) {
		return failf(httpd.StatusBadRequest, "the upload of '%s' broke off: %v", settings.Escape(path), broken.err)
	}
	return problem(err, path)
}

// create opens the target; the order of the calls is what watchers see:
// CREATE, CHMOD for a new file.
func create(account *user.Account, path string) (*os.File, bool, error) {
	info, err := os.Stat(path)
	created := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !created:
		return nil, false, problem(err, path)
	case err == nil && info.IsDir():
		return nil, false, failf(httpd.StatusBadRequest, "path is a directory: '%s'", settings.Escape(path))
	case err == nil:
		if err := mustBeRegular(info, path); err != nil {
			return nil, false, err
		}
		_ = os.Chown(path, int(account.UID), int(account.GID))
	}
	flags := syscall.O_WRONLY | syscall.O_CREAT | syscall.O_TRUNC | syscall.O_CLOEXEC | syscall.O_NONBLOCK | syscall.O_NOCTTY
	fd, err := syscall.Open(path, flags, 0o644)
	if err != nil {
		return nil, false, problem(err, path)
	}
	file := os.NewFile(uintptr(fd), path)
	if created {
		_ = syscall.Fchown(fd, int(account.UID), int(account.GID))
	}
	return file, created, nil
}

// bodyError is a failure of the client's side of an upload.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }

// fill copies with full buffers, so that a small file is a single write.
func fill(file io.Writer, body io.Reader, buf []byte) error {
	for {
		n, err := readFull(body, buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return &bodyError{err}
		}
		if n > 0 {
			if _, werr := file.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readFull fills buf and returns the reader's own error: unlike io.ReadFull it
// leaves a body's end (io.EOF) distinct from a body cut off.
func readFull(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var got int
		got, err = r.Read(buf[n:])
		n += got
	}
	return n, err
}
