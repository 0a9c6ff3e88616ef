package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait; nothing here takes long.
const patience = 30 * time.Second

// pair joins a host to a guest.
type pair struct {
	guest *Guest
	host  *Host
	// port is the host's end, which a test may close.
	port net.Conn
	// inside is the guest's end.
	inside *switchable
}

// switchable is a port whose host may change.
type switchable struct {
	mu   sync.Mutex
	conn net.Conn
	more chan net.Conn
	done chan struct{}
}

func (s *switchable) now() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

func (s *switchable) Read(b []byte) (int, error) {
	n, err := s.now().Read(b)
	if err == nil || n > 0 {
		return n, nil
	}
	select {
	case conn := <-s.more:
		s.mu.Lock()
		s.conn = conn
		s.mu.Unlock()
		return s.Read(b)
	case <-s.done:
		return 0, io.ErrUnexpectedEOF
	}
}

func (s *switchable) Write(b []byte) (int, error) {
	_, _ = s.now().Write(b) // what nobody reads is lost
	return len(b), nil
}

func sockets(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		conn := ends[i]
		t.Cleanup(func() { _ = conn.Close() })
	}
	return ends[0], ends[1]
}

func connect(t *testing.T, text string) *pair {
	t.Helper()
	outside, inside := sockets(t)
	p := &pair{port: outside, inside: &switchable{conn: inside, more: make(chan net.Conn), done: make(chan struct{})}}
	p.guest = NewGuest(p.inside, func(Told) {})
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = p.guest.Run()
	}()
	t.Cleanup(func() {
		close(p.inside.done)
		_ = p.inside.now().Close()
		<-over
	})
	p.greet(t, outside, text)
	return p
}

func (p *pair) greet(t *testing.T, port net.Conn, text string) <-chan error {
	t.Helper()
	host, err := Greet(port, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p.host, p.port = host, port
	over := make(chan error, 1)
	go func() { over <- host.Run() }()
	return over
}

// accept opens a stream and returns both its ends.
func (p *pair) accept(t *testing.T, l net.Listener) (*Stream, *Stream) {
	t.Helper()
	outside, err := p.host.Open()
	if err != nil {
		t.Fatal(err)
	}
	inside, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []*Stream{outside, inside.(*Stream)} {
		_ = st.SetDeadline(time.Now().Add(patience))
	}
	return outside, inside.(*Stream)
}

func listen(t *testing.T, g *Guest) net.Listener {
	t.Helper()
	l, err := g.Listen()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSettingsArriveOnce(t *testing.T) {
	outside, inside := sockets(t)
	g := NewGuest(inside, func(Told) {})
	told := g.Settings()
	go func() { _ = g.Run() }()
	text := bytes.Repeat([]byte("settings "), 20000)
	if _, err := Greet(outside, text); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-told:
		if !bytes.Equal(got.Text, text) || time.Since(got.Time).Abs() > time.Hour || len(got.Seed) != 32 {
			t.Errorf("%d bytes, %v, %d", len(got.Text), got.Time, len(got.Seed))
		}
	case <-time.After(patience):
		t.Fatal("no settings")
	}
	if g.Settings() != nil {
		t.Error("the guest still wants settings")
	}
}

func TestAllBytesArriveBothWaysAtOnce(t *testing.T) {
	p := connect(t, "")
	l := listen(t, p.guest)
	var all sync.WaitGroup
	for i := range 8 {
		outside, inside := p.accept(t, l)
		want := bytes.Repeat([]byte{byte(i + 1)}, 3<<20+i)
		for _, ends := range [][2]*Stream{{outside, inside}, {inside, outside}} {
			all.Add(2)
			go func() {
				defer all.Done()
				if _, err := ends[0].Write(want); err != nil {
					t.Error(err)
				}
				if err := ends[0].CloseWrite(); err != nil {
					t.Error(err)
				}
			}()
			go func() {
				defer all.Done()
				if got, err := io.ReadAll(ends[1]); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes: %v", len(got), err)
				}
			}()
		}
	}
	all.Wait()
}

func TestASlowReaderHoldsUpNobody(t *testing.T) {
	p := connect(t, "")
	l := listen(t, p.guest)
	slow, slowInside := p.accept(t, l)
	full := make(chan error, 1)
	go func() {
		_, err := slowInside.Write(make([]byte, 4*windowSize))
		full <- err
	}()
	outside, inside := p.accept(t, l)
	go func() { _, _ = io.Copy(inside, inside) }()
	for range 100 {
		if _, err := outside.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(outside, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(slow, make([]byte, 4*windowSize)); err != nil {
		t.Fatal(err)
	}
	if err := <-full; err != nil {
		t.Fatal(err)
	}
}

func TestCloseIsSeen(t *testing.T) {
	p := connect(t, "")
	l := listen(t, p.guest)
	outside, inside := p.accept(t, l)
	_, _ = inside.Write([]byte("last words"))
	_ = inside.Close()
	if got, err := io.ReadAll(outside); string(got) != "last words" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, err := outside.Write(make([]byte, 2*windowSize)); !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	if _, err := inside.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestDeadlines(t *testing.T) {
	p := connect(t, "")
	l := listen(t, p.guest)
	outside, inside := p.accept(t, l)
	_ = outside.SetReadDeadline(time.Unix(1, 0))
	if _, err := outside.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = outside.SetReadDeadline(time.Now().Add(time.Millisecond)) // while it waits
	if _, err := outside.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = inside.SetWriteDeadline(time.Now().Add(time.Millisecond))
	if _, err := inside.Write(make([]byte, 2*windowSize)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestWhoeverDoesNotListenRefuses(t *testing.T) {
	p := connect(t, "")
	_ = listen(t, p.guest).Close()
	outside, err := p.host.Open()
	if err != nil {
		t.Fatal(err)
	}
	_ = outside.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(outside); len(got) > 0 || err != nil {
		t.Error(got, err)
	}
	l := listen(t, p.guest) // again
	p.accept(t, l)
	if _, err := p.guest.Listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
}

func TestANewHostEndsAllStreams(t *testing.T) {
	p := connect(t, "")
	l := listen(t, p.guest)
	outside, inside := p.accept(t, l)
	// The old host goes within a frame, which nobody may take for a whole one.
	if _, err := p.port.Write(encode(data, outside.id, bytes.Repeat([]byte("x"), 1000))[:500]); err != nil {
		t.Fatal(err)
	}
	first := p.port
	next, end := sockets(t)
	_ = first.Close()
	p.inside.more <- end
	p.greet(t, next, "")
	if got, err := io.ReadAll(inside); len(got) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q %v", got, err)
	}
	again, there := p.accept(t, l)
	_, _ = again.Write([]byte("hello"))
	if _, err := io.ReadFull(there, make([]byte, 5)); err != nil {
		t.Error(err)
	}
}

// TestANewHostOnTheSamePort: after a restore the guest does not notice that
// the host is another one, until it says so.
func TestANewHostOnTheSamePort(t *testing.T) {
	outside, inside := sockets(t)
	g := NewGuest(inside, func(Told) {})
	go func() { _ = g.Run() }()
	l := listen(t, g)
	p := &pair{guest: g}
	for cut := 1; cut < 300; cut += 7 {
		host, err := Greet(outside, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Nobody runs this host: what the guest says stays on its way.
		st, err := host.Open()
		if err != nil {
			t.Fatal(err)
		}
		there, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = there.Write(bytes.Repeat([]byte("unread"), 100))
		_, _ = outside.Write(encode(data, st.id, make([]byte, 300))[:cut])
	}
	p.greet(t, outside, "")
	o, i := p.accept(t, l)
	_, _ = o.Write([]byte("hello"))
	if _, err := io.ReadFull(i, make([]byte, 5)); err != nil {
		t.Error(err)
	}
}

func TestWake(t *testing.T) {
	outside, inside := sockets(t)
	told := make(chan Told, 1)
	g := NewGuest(inside, func(got Told) { told <- got })
	go func() { _ = g.Run() }()
	host, err := Greet(outside, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Wake([]byte("news")); err != nil {
		t.Fatal(err)
	}
	if got := <-told; string(got.Text) != "news" || len(got.Seed) != 32 {
		t.Errorf("%q %d", got.Text, len(got.Seed))
	}
}

// lie answers a host's greeting and then sends what it likes.
func lie(t *testing.T, says func(port net.Conn, id uint32)) error {
	t.Helper()
	outside, inside := sockets(t)
	go func() {
		d := &decoder{in: inside}
		greeting, err := d.next()
		if err != nil {
			return
		}
		_, _ = inside.Write(bytes.Repeat([]byte{0xF5, 1, 2, 0}, 5000)) // rubbish first
		_, _ = inside.Write(encode(hello, 0, append(bytes.Clone(greeting.payload), 0)))
		opened, err := d.next()
		if err != nil {
			return
		}
		says(inside, opened.stream)
	}()
	host, err := Greet(outside, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	err = host.Run()
	if _, rerr := io.Copy(io.Discard, st); err == nil || rerr == nil {
		t.Errorf("the host believes it: %v %v", err, rerr)
	}
	return err
}

func TestALyingGuestEndsTheSession(t *testing.T) {
	huge := binary.LittleEndian.AppendUint32(nil, 1<<31)
	for name, says := range map[string]func(net.Conn, uint32){
		"more than was granted": func(port net.Conn, id uint32) {
			for range windowSize/1000 + 1 {
				_, _ = port.Write(encode(data, id, make([]byte, 1000)))
			}
		},
		"grants too much":     func(port net.Conn, id uint32) { _, _ = port.Write(encode(window, id, huge)) },
		"grants with no size": func(port net.Conn, id uint32) { _, _ = port.Write(encode(window, id, nil)) },
		"opens a stream":      func(port net.Conn, _ uint32) { _, _ = port.Write(encode(open, 77, nil)) },
		"greets again":        func(port net.Conn, _ uint32) { _, _ = port.Write(encode(hello, 0, make([]byte, 17))) },
		"sends settings":      func(port net.Conn, _ uint32) { _, _ = port.Write(encode(settings, 0, []byte("{}"))) },
		"wakes":               func(port net.Conn, _ uint32) { _, _ = port.Write(encode(wake, 0, make([]byte, 40))) },
		"no frame":            func(port net.Conn, _ uint32) { _, _ = port.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
		"an unknown kind":     func(port net.Conn, id uint32) { _, _ = port.Write(encode(kinds, id, nil)) },
		"too long": func(port net.Conn, id uint32) {
			_, _ = port.Write([]byte{byte(data), marker, 0xff, 0xff, byte(id), 0, 0, 0})
		},
		"a wrong end": func(port net.Conn, id uint32) {
			f := encode(data, id, []byte("x"))
			f[len(f)-1] = 0
			_, _ = port.Write(f)
		},
	} {
		t.Run(name, func(t *testing.T) { _ = lie(t, says) })
	}
}

// TestUnknownStreamsTakeNoMemory: frames of streams that do not exist are
// passed over.
func TestUnknownStreamsTakeNoMemory(t *testing.T) {
	err := lie(t, func(port net.Conn, id uint32) {
		for i := range uint32(5000) {
			_, _ = port.Write(encode(data, id+1+i, []byte("x")))
		}
		_ = port.Close()
	})
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	p := connect(t, "")
	for range maxStreams {
		if _, err := p.host.Open(); err != nil {
			return // the guest has refused some already, so fewer are open
		}
	}
	if _, err := p.host.Open(); !errors.Is(err, syscall.EMFILE) {
		t.Error(err)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte{})
	f.Add(encode(data, 1, []byte("payload")))
	f.Add(append(make([]byte, 100), encode(hello, 0, make([]byte, nonceSize))...))
	f.Add([]byte{byte(data), marker, 0xff, 0x7f, 1, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := &decoder{in: bytes.NewReader(raw)}
		for steps := 0; ; steps++ {
			got, err := d.next()
			if steps > len(raw)+1 {
				t.Fatal("it does not come to an end")
			}
			if errors.Is(err, errFrame) {
				continue
			}
			if err != nil {
				return
			}
			if len(got.payload) > MaxPayload || got.kind >= kinds || got.kind == padding {
				t.Fatalf("%+v", got)
			}
		}
	})
}

// FuzzGuest shows that nothing that a host says ends the guest.
func FuzzGuest(f *testing.F) {
	greeting := append(make([]byte, 9), encode(hello, 0, make([]byte, nonceSize))...)
	f.Add(append(bytes.Clone(greeting), encode(open, 1, nil)...))
	f.Add(append(bytes.Clone(greeting), encode(begin, 0, make([]byte, 40))...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		port := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(append(bytes.Clone(greeting), raw...)), io.Discard}
		if err := NewGuest(port, func(Told) {}).Run(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}
