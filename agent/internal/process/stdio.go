package process

import (
	"fmt"
	"os"
	"syscall"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/pty"
	"tupper.dev/agent/internal/user"
)

// stdio is both sides of a command's standard streams. Ours are in the
// poller, the child's are plain blocking descriptors.
type stdio struct {
	stdin, stdout, stderr *os.File
	term                  *os.File
	child                 [3]int
}

func openFiles(s *spec) (*stdio, error) {
	f := &stdio{child: [3]int{-1, -1, -1}}
	err := f.open(s)
	if err != nil {
		f.closeChild()
		f.closeOurs()
		return nil, connect.Errorf(connect.Internal, "cannot open the streams of process '%s': %v", s.config.Cmd, err)
	}
	return f, nil
}

func (f *stdio) open(s *spec) (err error) {
	if s.term != nil {
		slave := -1
		f.term, slave, err = pty.Open(*s.term, s.account.UID, s.account.GID)
		f.child = [3]int{slave, slave, slave}
		return err
	}
	if s.stdin {
		f.child[0], f.stdin, err = pipe(true)
	} else {
		f.child[0], err = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	if f.child[1], f.stdout, err = pipe(false); err != nil {
		return err
	}
	f.child[2], f.stderr, err = pipe(false)
	return err
}

// pipe makes a pipe; ours is the writing end if input.
func pipe(input bool) (child int, ours *os.File, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return -1, nil, fmt.Errorf("pipe: %w", err)
	}
	mine, child := fds[0], fds[1]
	if input {
		mine, child = fds[1], fds[0]
	}
	// A fresh pipe has no other flags, so they need not be asked for first.
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(mine), syscall.F_SETFL, syscall.O_NONBLOCK)
	return child, os.NewFile(uintptr(mine), "pipe"), nil
}

func (f *stdio) forChild(c *command) []uintptr {
	files := []uintptr{uintptr(f.child[0]), uintptr(f.child[1]), uintptr(f.child[2])}
	if c.script != nil {
		files = append(files, c.script.Fd())
	}
	return files
}

// credential is nil where there is only one user that commands can run as.
func credential(account *user.Account) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: account.UID, Gid: account.GID, Groups: account.Groups}
}

func (f *stdio) closeChild() {
	for i, fd := range f.child {
		if fd >= 0 && (i == 0 || fd != f.child[0]) {
			_ = syscall.Close(fd)
		}
	}
}

func (f *stdio) closeOurs() {
	for _, file := range []*os.File{f.stdin, f.stdout, f.stderr, f.term} {
		if file != nil {
			_ = file.Close()
		}
	}
}
