package tunnel

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

func TestParseTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000
   1: 0100007F:1F91 00000000:0000 01 00000000:00000000
   2: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A
   3: zz:0050 0:0 0A
   4: 0100007F 0:0 0A
   5: 0100007F:99999 0:0 0A
`
	got := parseTable([]byte(table))
	want := []Port{{Address: "127.0.0.1", Port: 8080}, {Address: "::1", Port: 80}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v", got)
	}
}

func pair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		t.Cleanup(func() { _ = c.Close() })
	}
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// TestJoinKeepsHalfClose: an end that says "no more" still gets the answer.
func TestJoinKeepsHalfClose(t *testing.T) {
	client, outside := pair(t)
	inside, program := pair(t)
	over := make(chan struct{})
	go func() {
		join(outside, outside, inside)
		close(over)
	}()
	question := bytes.Repeat([]byte("q"), 3<<20)
	go func() {
		_, _ = client.Write(question)
		_ = client.CloseWrite()
	}()
	got, err := io.ReadAll(program)
	if err != nil || !bytes.Equal(got, question) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	_, _ = program.Write([]byte("answer"))
	_ = program.Close()
	if got, err = io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("%q %v", got, err)
	}
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("it never ends")
	}
}
