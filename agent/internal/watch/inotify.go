// Package watch answers the watching half of filesystem.Filesystem with
// inotify.
//
// inotify knows single directories. A recursive watch therefore adds every new
// directory when it hears of it and then looks into it, making up the events
// of what is already there; the kernel's own event for the same entry, if it
// still comes, is dropped. Sync reads all that the kernel has queued, so that
// after it every directory made before is watched and every event made before
// can be fetched.
package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	mask = syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_MODIFY | syscall.IN_DELETE |
		syscall.IN_DELETE_SELF | syscall.IN_MOVED_FROM | syscall.IN_MOVE_SELF | syscall.IN_ATTRIB | syscall.IN_ONLYDIR
	eventHead = syscall.SizeofInotifyEvent
	maxDirs   = 100_000
)

// Operation is an EventType on the wire.
type Operation string

// The operations, in the order in which one kernel event yields them.
const (
	Create Operation = "EVENT_TYPE_CREATE"
	Rename Operation = "EVENT_TYPE_RENAME"
	Chmod  Operation = "EVENT_TYPE_CHMOD"
	Write  Operation = "EVENT_TYPE_WRITE"
	Remove Operation = "EVENT_TYPE_REMOVE"
)

// Event is one change; Name is relative to the watched directory.
type Event struct {
	Name string
	Op   Operation
}

// watcher is one inotify instance. emit is called with mu held, in order.
type watcher struct {
	root      string
	recursive bool
	emit      func(Event)
	file      *os.File
	raw       syscall.RawConn

	mu    sync.Mutex
	paths map[int32]string // watch -> directory relative to root ("" is root)
	seen  map[string]bool  // made-up CREATEs whose kernel event may still come
	buf   [64 << 10]byte
}

func newWatcher(root string, recursive bool, emit func(Event)) (*watcher, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &watcher{
		root: root, recursive: recursive, emit: emit, file: os.NewFile(uintptr(fd), "inotify"),
		paths: map[int32]string{}, seen: map[string]bool{},
	}
	w.raw, err = w.file.SyscallConn()
	if err == nil {
		w.mu.Lock()
		err = w.arm("", false)
		w.mu.Unlock()
	}
	if err != nil {
		_ = w.file.Close()
		return nil, err
	}
	return w, nil
}

func (w *watcher) close() { _ = w.file.Close() }

// arm watches a directory and, if recursive, those below it. With announce it
// emits CREATE (and WRITE for files with content) for what it finds. A
// directory that is already watched under another name is only renamed.
func (w *watcher) arm(rel string, announce bool) error {
	var wd int
	err := w.control(func(fd int) (err error) {
		wd, err = syscall.InotifyAddWatch(fd, filepath.Join(w.root, rel), mask)
		return err
	})
	if err != nil {
		return err
	}
	_, known := w.paths[int32(wd)]
	w.paths[int32(wd)] = rel
	if !w.recursive || len(w.paths) > maxDirs {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(w.root, rel))
	for _, entry := range entries {
		name := filepath.Join(rel, entry.Name())
		if announce && !known {
			w.announce(name, entry)
		}
		if entry.IsDir() {
			_ = w.arm(name, announce && !known) // it may have gone meanwhile
		}
	}
	return nil
}

func (w *watcher) announce(name string, entry os.DirEntry) {
	w.seen[name] = true
	w.emit(Event{Name: name, Op: Create})
	if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		w.emit(Event{Name: name, Op: Write})
	}
}

func (w *watcher) control(call func(fd int) error) error {
	var inner error
	if err := w.raw.Control(func(fd uintptr) { inner = call(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// run waits for events until the watcher is closed.
func (w *watcher) run() {
	for {
		alive := true
		err := w.raw.Read(func(fd uintptr) bool {
			got := w.drain(int(fd))
			alive = got >= 0
			return got != 0
		})
		if err != nil || !alive {
			return
		}
	}
}

// sync handles everything that is queued now.
func (w *watcher) sync() {
	_ = w.control(func(fd int) error { w.drain(fd); return nil })
}

// drain reads until nothing is queued. It returns how many reads brought
// something, or -1 when the descriptor is of no more use.
func (w *watcher) drain(fd int) (reads int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		n, err := syscall.Read(fd, w.buf[:])
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return reads
		case err != nil || n <= 0:
			return -1
		default:
			reads++
			w.parse(append([]byte(nil), w.buf[:n]...))
		}
	}
}

func (w *watcher) parse(data []byte) {
	for len(data) >= eventHead {
		wd := int32(binary.NativeEndian.Uint32(data))
		bits := binary.NativeEndian.Uint32(data[4:])
		size := int(binary.NativeEndian.Uint32(data[12:]))
		if len(data) < eventHead+size {
			return
		}
		name, _, _ := strings.Cut(string(data[eventHead:eventHead+size]), "\x00")
		data = data[eventHead+size:]
		w.handle(wd, bits, name)
	}
}

func (w *watcher) handle(wd int32, bits uint32, name string) {
	dir, known := w.paths[wd]
	if bits&syscall.IN_IGNORED != 0 {
		delete(w.paths, wd)
		return
	}
	if !known {
		return
	}
	self := bits&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF) != 0 || name == ""
	if self && dir != "" {
		return // the parent reports it
	}
	full := filepath.Join(dir, name)
	if self {
		full = "."
	}
	isDir := bits&syscall.IN_ISDIR != 0 && !self
	if isDir && bits&syscall.IN_MOVED_FROM != 0 {
		w.detach(full)
	}
	if bits&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0 && w.seen[full] {
		delete(w.seen, full)
		bits &^= syscall.IN_CREATE | syscall.IN_MOVED_TO
	} else if bits&(syscall.IN_DELETE|syscall.IN_MOVED_FROM) != 0 {
		delete(w.seen, full)
	}
	for _, op := range operations(bits) {
		w.emit(Event{Name: full, Op: op})
	}
	if isDir && w.recursive && bits&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0 {
		_ = w.arm(full, true)
	}
}

// detach forgets the watches of a directory that was moved away. If it was
// moved within the tree, its arrival arms it again, and the kernel gives the
// same watches back.
func (w *watcher) detach(rel string) {
	for wd, path := range w.paths {
		if path == rel || strings.HasPrefix(path, rel+"/") {
			delete(w.paths, wd)
			_ = w.control(func(fd int) error { _, err := syscall.InotifyRmWatch(fd, uint32(wd)); return err })
		}
	}
}

func operations(bits uint32) []Operation {
	var list []Operation
	if bits&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0 {
		list = append(list, Create)
	}
	if bits&(syscall.IN_MOVED_FROM|syscall.IN_MOVE_SELF) != 0 {
		list = append(list, Rename)
	}
	if bits&syscall.IN_ATTRIB != 0 {
		list = append(list, Chmod)
	}
	if bits&syscall.IN_MODIFY != 0 {
		list = append(list, Write)
	}
	if bits&(syscall.IN_DELETE|syscall.IN_DELETE_SELF) != 0 {
		list = append(list, Remove)
	}
	return list
}
