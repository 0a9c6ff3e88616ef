// Package filesystem answers filesystem.Filesystem of envd's protocol, all but
// the watches. It works as root, as envd does: the user of a request decides
// how paths are resolved and who owns what is created.
package filesystem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/user"
)

// MetadataPrefix is where a file's metadata lies among its xattrs.
const MetadataPrefix = "user.e2b."

// Entry is EntryInfo on the wire.
type Entry struct {
	Name          string            `json:"name"`
	Type          string            `json:"type,omitempty"`
	Path          string            `json:"path"`
	Size          int64             `json:"size,string,omitempty"`
	Mode          uint32            `json:"mode,omitempty"`
	Permissions   string            `json:"permissions"`
	Owner         string            `json:"owner"`
	Group         string            `json:"group"`
	ModifiedTime  string            `json:"modifiedTime"`
	SymlinkTarget *string           `json:"symlinkTarget,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// Describe looks at a path without following it; for a symbolic link, type
// and mode are those of the target.
func Describe(users *user.Database, path string) (*Entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := &Entry{
		Name: settings.Escape(filepath.Base(path)), Path: settings.Escape(path),
		Type: kind(info.Mode()), Size: info.Size(), Mode: bits(info.Mode()),
		Permissions: info.Mode().String(), ModifiedTime: info.ModTime().UTC().Format(time.RFC3339Nano),
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = users.Name(st.Uid), users.GroupName(st.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		e.follow(path)
	}
	if info.Mode().IsRegular() || info.IsDir() {
		e.Metadata = ReadMetadata(path)
	}
	return e, nil
}

// follow fills in what an entry takes from the target of its link.
func (e *Entry) follow(path string) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		target = path
	}
	shown := settings.Escape(target)
	e.SymlinkTarget, e.Type, e.Mode = &shown, "", 0
	if info, err := os.Stat(path); err == nil {
		e.Type, e.Mode = kind(info.Mode()), bits(info.Mode())
	}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "FILE_TYPE_FILE"
	case mode.IsDir():
		return "FILE_TYPE_DIRECTORY"
	}
	return ""
}

// bits is the permission part of a mode as chmod takes it, without type.
func bits(mode fs.FileMode) uint32 { return uint32(mode.Perm()) }

// ReadMetadata collects the metadata xattrs of a file; nil when there are none
// or the file system has no xattrs.
func ReadMetadata(path string) map[string]string {
	names := make([]byte, 4096)
	n, err := syscall.Listxattr(path, names)
	if errors.Is(err, syscall.ERANGE) {
		names = make([]byte, 64<<10)
		n, err = syscall.Listxattr(path, names)
	}
	if err != nil || n == 0 {
		return nil
	}
	var found map[string]string
	value := make([]byte, 4096)
	for _, name := range strings.Split(string(names[:n]), "\x00") {
		key, ok := strings.CutPrefix(name, MetadataPrefix)
		if !ok || !utf8.ValidString(key) {
			continue
		}
		n, err := syscall.Getxattr(path, name, value)
		if err != nil || !utf8.Valid(value[:n]) {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = string(value[:n])
	}
	return found
}

// Problem turns an error of a system call on path into one with a code.
func Problem(err error, path string) error {
	shown := settings.Escape(path)
	var coded *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.Is(err, syscall.ENAMETOOLONG):
		return connect.Errorf(connect.InvalidArgument, "name too long: '%.300s'", shown)
	case errors.Is(err, fs.ErrNotExist):
		return connect.Errorf(connect.NotFound, "path '%s' does not exist", shown)
	case errors.Is(err, syscall.ENOTDIR):
		return connect.Errorf(connect.InvalidArgument, "a parent of '%s' is not a directory", shown)
	case errors.Is(err, syscall.ELOOP):
		return connect.Errorf(connect.FailedPrecondition, "too many symbolic links: '%s'", shown)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return connect.Errorf(connect.ResourceExhausted, "no space left for '%s'", shown)
	case errors.Is(err, fs.ErrExist):
		return connect.Errorf(connect.AlreadyExists, "path '%s' already exists", shown)
	case errors.Is(err, fs.ErrPermission):
		return connect.Errorf(connect.PermissionDenied, "permission denied: '%s'", shown)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EXDEV):
		return connect.Errorf(connect.InvalidArgument, "'%s': %v", shown, reason(err))
	}
	return connect.Errorf(connect.Internal, "'%s': %v", shown, reason(err))
}

// reason is the system's word for an error, without a path in it.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// MakeParents creates the missing ones of the directories above path (and
// path itself when self), owned by the account, mode 0755.
func MakeParents(account *user.Account, path string, self bool) error {
	if !self {
		path = filepath.Dir(path)
	}
	var missing []string
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			break
		}
		if err == nil {
			return syscall.ENOTDIR
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		err := os.Mkdir(missing[i], 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_ = os.Chmod(missing[i], 0o755)
		if err := os.Lchown(missing[i], int(account.UID), int(account.GID)); err != nil && os.Getuid() == 0 {
			return err
		}
	}
	return nil
}
