package httpd

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// served is a server on a socket; parkAll does what a hold does.
func served(t *testing.T, handler HandlerFunc) (dial func() *net.UnixConn, parkAll func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{MaxHeaderBytes: 4096, ReadHeaderTimeout: 1 << 40, IdleTimeout: 1 << 40, Log: t.Logf}
	s.Handler = func(w ResponseWriter, r *Request) {
		switch {
		case r.URL.Path == "/park":
			s.DisconnectBut(w)
		case r.URL.Path == "/carry":
			if !s.Continue(w, r.Header.Get(CarryHeader)) {
				w.WriteHeader(StatusNotFound)
			}
		default:
			handler(w, r)
		}
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = l.Close() })
	dial = func() *net.UnixConn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn.(*net.UnixConn)
	}
	parkAll = func() {
		conn := dial()
		ask(t, conn, "POST /park HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if said, err := io.ReadAll(conn); err != nil || !bytes.Contains(said, []byte(" 200 ")) {
			t.Errorf("%q %v", said, err)
		}
	}
	return dial, parkAll
}

func ask(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Error(err)
	}
}

// back continues a connection over a new socket.
func back(t *testing.T, conn *net.UnixConn, id string) *bufio.Reader {
	t.Helper()
	ask(t, conn, "POST /carry HTTP/1.1\r\nHost: a\r\nTupper-Carry: "+id+"\r\n\r\n")
	reader := bufio.NewReader(conn)
	for n := 0; ; n++ {
		line, err := reader.ReadString('\n')
		if err != nil || (n == 0 && !strings.Contains(line, " 101 ")) {
			t.Fatalf("%q %v", line, err)
		}
		if line == "\r\n" {
			return reader
		}
	}
}

// Both directions are busy while the socket below is changed again and again,
// and not a byte is lost, doubled or out of order.
func TestALaneChangesItsSocket(t *testing.T) {
	const size, rounds = 8 << 20, 20
	down := bytes.Repeat([]byte("0123456789abcde\n"), 4*size/16) // more than the rounds take
	up := bytes.Repeat([]byte("the other direct"), size/16)
	var got []byte
	var reading sync.WaitGroup
	reading.Add(1)
	dial, parkAll := served(t, func(w ResponseWriter, r *Request) {
		conn, in, err := NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer reading.Done()
			got, _ = io.ReadAll(in)
		}()
		for rest := down; len(rest) > 0; rest = rest[min(len(rest), 10_000):] {
			if _, err := conn.Write(rest[:min(len(rest), 10_000)]); err != nil {
				t.Error(err)
			}
		}
		_ = conn.(halfConn).CloseWrite()
		reading.Wait()
		_ = conn.Close()
	})
	conn := dial()
	ask(t, conn, "GET /x HTTP/1.1\r\nHost: a\r\nTupper-Carry: one\r\n\r\n")
	in := bufio.NewReader(conn)
	var seen []byte
	rest := up
	for round := range rounds {
		parked := make(chan struct{})
		sent := make(chan int)
		go func() { // sends until it is told that the socket goes
			n := 0
			for n < size/rounds && n < len(rest) {
				m, err := conn.Write(rest[n:min(len(rest), n+5000)])
				n += m
				if err != nil {
					t.Error(err)
					break
				}
			}
			sent <- n
		}()
		buf := make([]byte, size/rounds/2)
		n, _ := io.ReadFull(in, buf)
		seen = append(seen, buf[:n]...)
		rest = rest[<-sent:]
		go func() {
			parkAll()
			close(parked)
		}()
		tail, err := io.ReadAll(in) // until it says "no more"
		if err != nil {
			t.Fatal(round, err)
		}
		seen = append(seen, tail...)
		_ = conn.CloseWrite()
		<-parked
		conn = dial()
		in = back(t, conn, "one")
	}
	if len(seen) >= len(down) {
		t.Fatal("the rounds took all")
	}
	go func() {
		ask(t, conn, string(rest))
		_ = conn.CloseWrite()
	}()
	tail, _ := io.ReadAll(in)
	seen = append(seen, tail...)
	reading.Wait()
	if !bytes.Equal(seen, down) {
		t.Errorf("%d of %d bytes came down", len(seen), len(down))
	}
	if !bytes.Equal(got, up) {
		t.Errorf("%d of %d bytes came up", len(got), len(up))
	}
}

func TestAClientThatDoesNotTakePartLosesItsLane(t *testing.T) {
	ended := make(chan error, 1)
	dial, parkAll := served(t, func(w ResponseWriter, r *Request) {
		conn, in, _ := NewResponseController(w).Hijack()
		_, err := in.ReadByte()
		ended <- err
		_ = conn.Close()
	})
	conn := dial()
	ask(t, conn, "GET /x HTTP/1.1\r\nHost: a\r\nTupper-Carry: one\r\n\r\n")
	for i := 0; i < 3; i++ { // it is there once somebody else is answered
		other := dial()
		ask(t, other, fmt.Sprintf("POST /carry HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTupper-Carry: n%d\r\n\r\n", i))
		_, _ = io.ReadAll(other)
	}
	parkAll()
	if err := <-ended; err == nil {
		t.Error("the handler goes on")
	}
}

func TestNobodyContinuesALaneThatIsNotParked(t *testing.T) {
	dial, _ := served(t, func(w ResponseWriter, r *Request) {
		_, _ = w.Write([]byte("x"))
	})
	conn := dial()
	ask(t, conn, "GET /x HTTP/1.1\r\nHost: a\r\nTupper-Carry: one\r\n\r\n")
	reader := bufio.NewReader(conn)
	if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	other := dial()
	ask(t, other, "POST /carry HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTupper-Carry: one\r\n\r\n")
	if said, _ := io.ReadAll(other); !bytes.Contains(said, []byte(" 404 ")) {
		t.Errorf("%q", said)
	}
}
