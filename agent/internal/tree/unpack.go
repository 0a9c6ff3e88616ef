package tree

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/filesystem"
	"tupper.dev/agent/internal/user"
)

func (s *Service) unpack(w httpd.ResponseWriter, r *httpd.Request, account *user.Account, target string) {
	control := httpd.NewResponseController(w)
	var body io.Reader = httpd.NewSteady(r.Body, control)
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			s.report(w, &badArchive{err}, target)
			return
		}
		body = z
	default:
		fail(w, httpd.StatusBadRequest, "unsupported content encoding '"+r.Header.Get("Content-Encoding")+"'")
		return
	}
	if err := filesystem.MakeParents(account, target, true); err != nil {
		s.report(w, err, target)
		return
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		s.report(w, err, target)
		return
	}
	defer root.Close()
	u := &unpacker{root: root, buf: make([]byte, bufferSize)}
	u.uid, u.gid = owner(account)
	if err := u.all(tar.NewReader(body)); err != nil {
		s.report(w, err, target)
		return
	}
	connect.WriteJSON(w, httpd.StatusOK, map[string]int64{"files": u.files, "bytes": u.bytes})
}

type unpacker struct {
	root     *os.Root
	uid, gid int
	buf      []byte
	files    int64
	bytes    int64
	dirs     []*tar.Header // times and modes are set last
}

func (u *unpacker) all(in *tar.Reader) error {
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			u.finishDirs()
			return nil
		}
		if err != nil {
			return &badArchive{err}
		}
		name, err := clean(head.Name)
		if err != nil {
			return err
		}
		if err := u.entry(name, head, in); err != nil {
			return err
		}
	}
}

// clean makes an entry's name relative; one that leads out is an error.
func clean(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return "", &badArchive{fmt.Errorf("a name contains a NUL byte")}
	}
	rel := path.Clean(name)
	if path.IsAbs(rel) || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", &badArchive{fmt.Errorf("entry %q leads out of the target", name)}
	}
	return rel, nil
}

func (u *unpacker) entry(name string, head *tar.Header, in io.Reader) error {
	if name == "." {
		return nil
	}
	if err := u.parents(filepath.Dir(name)); err != nil {
		return u.explain(name, err)
	}
	var err error
	switch head.Typeflag {
	case tar.TypeDir:
		head.Name = name
		u.dirs = append(u.dirs, head)
		err = u.mkdir(name)
	case tar.TypeReg:
		err = u.file(name, head, in)
	case tar.TypeSymlink:
		err = u.replace(name, func() error { return u.root.Symlink(head.Linkname, name) })
		if err == nil {
			_ = u.root.Lchown(name, u.uid, u.gid)
		}
	case tar.TypeLink:
		var old string
		if old, err = clean(head.Linkname); err != nil {
			return err
		}
		err = u.replace(name, func() error { return u.root.Link(old, name) })
	default:
		return nil // devices, FIFOs: left out
	}
	if err != nil {
		return u.explain(name, err)
	}
	if head.Typeflag != tar.TypeDir {
		u.files++
	}
	return nil
}

// explain tells a refusal of os.Root, which has no error number, from those of
// the system.
func (u *unpacker) explain(name string, err error) error {
	var errno syscall.Errno
	var bad *badArchive
	if errors.As(err, &errno) || errors.As(err, &bad) {
		return err
	}
	return &badArchive{fmt.Errorf("entry %q: %w", name, err)}
}

func (u *unpacker) parents(dir string) error {
	if dir == "." {
		return nil
	}
	info, err := u.root.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.parents(filepath.Dir(dir)); err != nil {
		return err
	}
	return u.mkdir(dir)
}

func (u *unpacker) mkdir(name string) error {
	err := u.root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, serr := u.root.Stat(name)
		if serr == nil && info.IsDir() {
			return nil
		}
		return syscall.ENOTDIR
	}
	if err != nil {
		return err
	}
	return u.root.Lchown(name, u.uid, u.gid)
}

// replace makes a link in place of whatever file is there.
func (u *unpacker) replace(name string, make func() error) error {
	err := make()
	if errors.Is(err, fs.ErrExist) {
		if info, serr := u.root.Lstat(name); serr == nil && info.IsDir() {
			return syscall.EISDIR
		}
		if err = u.root.Remove(name); err == nil {
			err = make()
		}
	}
	return err
}

// file writes one file. What is in its place is removed first, so that neither
// a link nor a FIFO there is followed.
func (u *unpacker) file(name string, head *tar.Header, in io.Reader) error {
	if info, err := u.root.Lstat(name); err == nil {
		if info.IsDir() {
			return syscall.EISDIR
		}
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{in}, u.buf)
	u.bytes += n
	if err == nil {
		err = u.settle(file, name, head)
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = u.root.Remove(name)
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			err = &badArchive{err}
		}
	}
	return err
}

func (u *unpacker) settle(file *os.File, name string, head *tar.Header) error {
	if err := file.Chown(u.uid, u.gid); err != nil {
		return err
	}
	if err := file.Chmod(head.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)); err != nil {
		return err
	}
	if !head.ModTime.IsZero() {
		_ = u.root.Chtimes(name, head.ModTime, head.ModTime)
	}
	return nil
}

func (u *unpacker) finishDirs() {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		d := u.dirs[i]
		_ = u.root.Chmod(d.Name, d.FileInfo().Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
		if !d.ModTime.IsZero() {
			_ = u.root.Chtimes(d.Name, d.ModTime, d.ModTime)
		}
	}
}
