package tree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/settings"
)

const (
	bufferSize = 256 << 10
)

// pack streams a directory, or a single file. Names are relative to the
// directory. Sockets, FIFOs and devices are left out; so is what vanishes. A
// file that shrinks while it is read is filled up with zeros, one that grows is
// cut.
func (s *Service) pack(w httpd.ResponseWriter, r *httpd.Request, path string) {
	info, err := os.Stat(path)
	if err != nil {
		s.report(w, err, path)
		return
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		fail(w, httpd.StatusBadRequest, "path '"+settings.Escape(path)+"' is neither a directory nor a regular file")
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Cache-Control", "no-store")
	p := &packer{
		ctx: r.Context(), out: tar.NewWriter(&patient{w: w, control: httpd.NewResponseController(w)}),
		buf: make([]byte, bufferSize), inodes: map[inode]string{},
	}
	if info.IsDir() {
		err = p.dir(path, "")
	} else {
		err = p.add(path, filepath.Base(path), info)
	}
	if err == nil {
		err = p.out.Close()
	}
	if err != nil {
		panic(httpd.ErrAbortHandler) // the client must not take half for all
	}
}

type inode struct{ dev, ino uint64 }

type packer struct {
	ctx    context.Context
	out    *tar.Writer
	buf    []byte
	inodes map[inode]string
}

func (p *packer) dir(path, rel string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		full, name := filepath.Join(path, entry.Name()), filepath.Join(rel, entry.Name())
		info, err := os.Lstat(full)
		if err != nil {
			continue
		}
		if err := p.add(full, name, info); err != nil {
			return err
		}
		if info.IsDir() {
			if err := p.dir(full, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *packer) add(path, name string, info os.FileInfo) error {
	mode := info.Mode()
	if !mode.IsRegular() && !mode.IsDir() && mode&fs.ModeSymlink == 0 {
		return nil
	}
	link := ""
	if mode&fs.ModeSymlink != 0 {
		var err error
		if link, err = os.Readlink(path); err != nil {
			return nil
		}
	}
	var file *os.File
	if mode.IsRegular() {
		var err error
		file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		defer file.Close()
		if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil
		}
	}
	head := header(info, name, link)
	if head == nil {
		return nil
	}
	if p.linked(head, info) {
		file = nil
	}
	if err := p.out.WriteHeader(head); err != nil {
		return err
	}
	if file == nil {
		return nil
	}
	return p.content(file, head.Size)
}

// header makes a PAX header: no limit on lengths, sizes or ids.
func header(info os.FileInfo, name, link string) *tar.Header {
	head, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return nil
	}
	head.Name = name
	if info.IsDir() && !strings.HasSuffix(name, "/") {
		head.Name += "/"
	}
	head.Format = tar.FormatPAX
	head.Uname, head.Gname = "", ""
	head.AccessTime, head.ChangeTime = time.Time{}, time.Time{}
	return head
}

// linked turns the second and later names of a file into hard links.
func (p *packer) linked(head *tar.Header, info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 || head.Typeflag != tar.TypeReg {
		return false
	}
	key := inode{uint64(st.Dev), st.Ino}
	first, again := p.inodes[key]
	if !again {
		p.inodes[key] = head.Name
		return false
	}
	head.Typeflag, head.Linkname, head.Size = tar.TypeLink, first, 0
	return true
}

func (p *packer) content(file *os.File, size int64) error {
	n, err := io.CopyBuffer(struct{ io.Writer }{p.out}, io.LimitReader(file, size), p.buf)
	if err != nil {
		return err
	}
	clear(p.buf)
	for n < size {
		part := min(size-n, int64(len(p.buf)))
		if _, err := p.out.Write(p.buf[:part]); err != nil {
			return err
		}
		n += part
	}
	return nil
}

// patient gives every write its own time limit.
type patient struct {
	w       io.Writer
	control *httpd.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(httpd.Stall))
	return p.w.Write(b)
}
