package sudo

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/supervise"
	"tupper.dev/agent/internal/user"
)

const (
	maxRequest   = 4 << 20
	requestLimit = 10 * time.Second
)

// Broker runs commands for sudo clients.
type Broker struct {
	settings *settings.Settings
	reaper   *supervise.Reaper
	shield   *supervise.Shield
	log      func(string, ...any)
	path     string
}

// NewBroker makes a broker; Run lets it work.
func NewBroker(s *settings.Settings, reaper *supervise.Reaper, shield *supervise.Shield, log func(string, ...any)) *Broker {
	return &Broker{settings: s, reaper: reaper, shield: shield, log: log, path: SocketPath}
}

// Run listens until ctx ends. Not being able to is logged, not fatal.
func (b *Broker) Run(ctx context.Context) {
	listener, err := b.listen()
	if err != nil {
		b.log("sudo.unavailable error=%q", err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			b.log("sudo.accept_failed error=%q", err)
			return
		}
		clients.Add(1)
		go func() {
			defer clients.Done()
			defer conn.Close()
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer end()
			b.serve(conn)
		}()
	}
}

func (b *Broker) listen() (*net.UnixListener, error) {
	dir := filepath.Dir(b.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	_ = os.Chmod(dir, 0o755)
	_ = os.Remove(b.path)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(b.path, 0o666)
}

func (b *Broker) serve(conn *net.UnixConn) {
	a := answer{}
	if err := b.handle(conn, &a); err != nil {
		a = answer{Error: err.Error()}
	}
	body, _ := json.Marshal(a)
	_ = conn.SetWriteDeadline(time.Now().Add(requestLimit))
	_, _ = conn.Write(body)
}

func (b *Broker) handle(conn *net.UnixConn, a *answer) error {
	req, peer, files, err := receive(conn)
	defer closeAll(files)
	if err != nil {
		return err
	}
	caller, err := b.settings.Users.Lookup(strconv.FormatUint(uint64(peer.Uid), 10))
	if err != nil || !b.allowed(caller) {
		return fmt.Errorf("user with uid %d is not allowed to use sudo", peer.Uid)
	}
	p, err := draw(b.settings.Users, caller, req, b.settings.Env()["PATH"])
	if err != nil {
		return err
	}
	p.env = carryMarker(p.env, int(peer.Pid))
	child, err := b.reaper.Start(&supervise.Command{
		Path: p.path, Argv: p.argv, Env: p.env, Dir: p.cwd, Umask: req.umask(), Credential: p.credential(),
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Apart: supervise.IsSetsid(p.path),
	})
	if err != nil {
		return fmt.Errorf("unable to execute %s: %w", p.path, err)
	}
	b.shield.Expose(child.PID)
	closeAll(files)
	if req.Background {
		return nil
	}
	await(conn, child, a)
	return nil
}

// await passes the client's signals on until the command is over. A client
// that is gone hangs up.
func await(conn *net.UnixConn, child supervise.Child, a *answer) {
	tree := supervise.Tree{Leader: child.PID, Group: child.Group}
	var forwarder sync.WaitGroup
	over := make(chan struct{})
	forwarder.Add(1)
	go func() {
		defer forwarder.Done()
		var one [1]byte
		for {
			_, err := io.ReadFull(conn, one[:])
			select {
			case <-over:
				return
			default:
			}
			if err != nil {
				_ = tree.Signal(syscall.SIGHUP)
				return
			}
			_ = tree.Signal(syscall.Signal(one[0]))
		}
	}()
	status := (<-child.Exit).Status
	close(over)
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	forwarder.Wait()
	if status.Exited() {
		a.Exit = status.ExitStatus()
		return
	}
	a.Signal = int(status.Signal())
}

// allowed names who may: root, the default user, and the usual groups.
func (b *Broker) allowed(caller *user.Account) bool {
	if caller.UID == 0 {
		return true
	}
	if fallback, err := b.settings.Account(""); err == nil && fallback.UID == caller.UID {
		return true
	}
	return b.settings.Users.InGroup(caller, "sudo", "wheel", "admin")
}

// passCredentials lets the kernel vouch for the sender of each message.
//
// SO_PEERCRED would be simpler, but gVisor (20240729) answers it with the
// credentials of whoever asks, so that everybody would be root.
func passCredentials(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	})
	return errors.Join(err, inner)
}

// receive reads the request, and the three descriptors and the credentials
// that come with its first bytes.
func receive(conn *net.UnixConn) (*Request, *syscall.Ucred, []int, error) {
	_ = conn.SetReadDeadline(time.Now().Add(requestLimit))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	if err := passCredentials(conn); err != nil {
		return nil, nil, nil, fmt.Errorf("who is calling: %w", err)
	}
	head := make([]byte, 4)
	oob := make([]byte, syscall.CmsgSpace(3*4)+syscall.CmsgSpace(syscall.SizeofUcred))
	n, oobn, _, _, err := conn.ReadMsgUnix(head, oob)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the request: %w", err)
	}
	peer, files, err := attached(oob[:oobn])
	if err != nil {
		return nil, nil, files, err
	}
	req, err := readRequest(conn, head, n)
	return req, peer, files, err
}

func readRequest(conn *net.UnixConn, head []byte, n int) (*Request, error) {
	if _, err := io.ReadFull(conn, head[n:]); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxRequest {
		return nil, fmt.Errorf("the request of %d bytes is too large", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	req := new(Request)
	if err := json.Unmarshal(body, req); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if len(req.Args) == 0 && !req.Login && !req.Shell {
		return nil, errors.New("no command given")
	}
	return req, nil
}

// attached takes the control messages apart.
func attached(oob []byte) (peer *syscall.Ucred, files []int, err error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, nil, fmt.Errorf("read the descriptors: %w", err)
	}
	for i := range messages {
		if got, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, got...)
		}
		if cred, err := syscall.ParseUnixCredentials(&messages[i]); err == nil {
			peer = cred
		}
	}
	for _, fd := range files {
		syscall.CloseOnExec(fd)
	}
	if len(files) != 3 || peer == nil {
		return nil, files, fmt.Errorf("got %d descriptors instead of 3, or no credentials", len(files))
	}
	return peer, files, nil
}

// closeAll closes each descriptor once; a second call does nothing.
func closeAll(files []int) {
	for i, fd := range files {
		if fd >= 0 {
			_ = syscall.Close(fd)
			files[i] = -1
		}
	}
}

// carryMarker gives the child the command id of its caller, as the kernel has
// it, so that it dies with the command it belongs to.
func carryMarker(env []string, pid int) []string {
	prefix := supervise.Marker + "="
	out := env[:0:0]
	for _, entry := range env {
		if !strings.HasPrefix(entry, prefix) {
			out = append(out, entry)
		}
	}
	for _, entry := range strings.Split(string(supervise.Environ(pid)), "\x00") {
		if strings.HasPrefix(entry, prefix) {
			return append(out, entry)
		}
	}
	return out
}
