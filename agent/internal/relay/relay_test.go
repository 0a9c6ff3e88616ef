package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tupper.dev/agent/internal/mux"
)

// limit bounds every wait; nothing here takes long.
const limit = 30 * time.Second

// machine plays the virtual machine: a channel that one relay at a time can
// use, and an agent that answers in capitals.
type machine struct {
	t       *testing.T
	channel *net.UnixListener
	told    chan mux.Told

	mu   sync.Mutex
	conn net.Conn
}

func begin(t *testing.T, path string) *machine {
	t.Helper()
	channel, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, channel: channel, told: make(chan mux.Told, 8)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := channel.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conn = conn
			m.mu.Unlock()
			m.serve(conn)
		}
	}()
	t.Cleanup(func() {
		m.end()
		<-over
	})
	return m
}

// end is the end of the machine.
func (m *machine) end() {
	_ = m.channel.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		_ = m.conn.Close()
	}
}

func (m *machine) serve(conn net.Conn) {
	defer conn.Close()
	guest := mux.NewGuest(conn, func(got mux.Told) { m.told <- got })
	l, err := guest.Listen()
	if err != nil {
		m.t.Error(err)
		return
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go answer(client)
		}
	}()
	_ = guest.Run()
	_ = l.Close()
}

func answer(client net.Conn) {
	defer client.Close()
	text, err := io.ReadAll(client)
	if err == nil {
		_, _ = client.Write([]byte(strings.ToUpper(string(text))))
	}
}

// run starts a relay; its result comes over the channel.
func run(t *testing.T, r *Relay) (stop func(), over <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(cancel)
	return cancel, done
}

func wait(t *testing.T, over <-chan error) error {
	t.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(limit):
		t.Fatal("the relay does not end")
		return nil
	}
}

// dial connects as soon as the relay listens.
func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(limit))
			return conn
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func ask(t *testing.T, path string) {
	t.Helper()
	conn := dial(t, path)
	defer conn.Close()
	_, _ = conn.Write([]byte("quiet"))
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "QUIET" || err != nil {
		t.Fatalf("%q %v", got, err)
	}
}

func TestARelayIsReplacedAndEndsWithItsMachine(t *testing.T) {
	dir := t.TempDir()
	channel, address := filepath.Join(dir, "c"), filepath.Join(dir, "a")
	m := begin(t, channel)
	for range 3 {
		stop, over := run(t, &Relay{Channel: channel, Address: address})
		ask(t, address)
		open := dial(t, address) // stays open, which must hold up nobody
		stop()
		if err := wait(t, over); err != nil {
			t.Fatal(err)
		}
		_ = open.Close()
	}
	_, over := run(t, &Relay{Channel: channel, Address: address})
	ask(t, address)
	kept := dial(t, address)
	defer kept.Close()
	m.end()
	if err := wait(t, over); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(address); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := io.ReadAll(kept); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestTheSocketIsForNobodyElse(t *testing.T) {
	dir := t.TempDir()
	begin(t, filepath.Join(dir, "c"))
	defer syscall.Umask(syscall.Umask(0o177)) // what the program does
	run(t, &Relay{Channel: filepath.Join(dir, "c"), Address: filepath.Join(dir, "a")})
	ask(t, filepath.Join(dir, "a"))
	info, err := os.Lstat(filepath.Join(dir, "a"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}

func TestClientsWaitForTheMachine(t *testing.T) {
	dir := t.TempDir()
	channel, address := filepath.Join(dir, "c"), filepath.Join(dir, "a")
	run(t, &Relay{Channel: channel, Address: address})
	early := dial(t, address)
	defer early.Close()
	_, _ = early.Write([]byte("early"))
	_ = early.CloseWrite()
	begin(t, channel)
	if got, err := io.ReadAll(early); string(got) != "EARLY" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

func TestAWakeComesWithANewSocket(t *testing.T) {
	dir := t.TempDir()
	channel, address := filepath.Join(dir, "c"), filepath.Join(dir, "a")
	m := begin(t, channel)
	wakes := make(chan os.Signal, 1)
	run(t, &Relay{Channel: channel, Address: address, News: []byte("news"), Wakes: wakes})
	if got := <-m.told; string(got.Text) != "news" {
		t.Errorf("%q", got.Text)
	}
	ask(t, address)
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(address, moved); err != nil {
		t.Fatal(err)
	}
	wakes <- syscall.SIGUSR1
	if got := <-m.told; len(got.Text) > 0 {
		t.Errorf("%q", got.Text)
	}
	ask(t, address)
	if _, err := net.Dial("unix", moved); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

func TestAConsoleThatFloodsIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console")
	r, w := io.Pipe()
	go func() {
		for range 1000 {
			_, _ = w.Write(bytes.Repeat([]byte("flood "), 100))
		}
		_, _ = w.Write([]byte("the last words"))
		_ = w.Close()
	}()
	if halted, err := (&Console{Line: r, Path: path}).run(); halted || err != nil {
		t.Fatal(halted, err)
	}
	total := 0
	for _, name := range []string{path, path + ".1"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(text)
		if name == path && !bytes.HasSuffix(text, []byte("the last words")) {
			t.Errorf("it ends with %q", text[max(0, len(text)-30):])
		}
	}
	if total > 2*consoleHalf {
		t.Error(total)
	}
}

func TestAMachineThatHaltsEndsItsRelay(t *testing.T) {
	dir := t.TempDir()
	channel, address := filepath.Join(dir, "c"), filepath.Join(dir, "a")
	begin(t, channel)
	r, w := io.Pipe()
	_, over := run(t, &Relay{Channel: channel, Address: address, Console: &Console{Line: r, Path: filepath.Join(dir, "l")}})
	ask(t, address)
	_, _ = w.Write([]byte("[   12.3] reboot: Sys"))
	_, _ = w.Write([]byte("tem halted\n"))
	if err := wait(t, over); !errors.Is(err, ErrHalted) {
		t.Error(err)
	}
}
