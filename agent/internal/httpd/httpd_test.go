package httpd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = 10 * time.Second

// world is a server on a socket whose handler echoes method, path and body.
type world struct {
	t      testing.TB
	socket string
	server *Server

	mu    sync.Mutex
	logs  []string
	calls int
}

func serve(t testing.TB, handler HandlerFunc) *world {
	w := &world{t: t, socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	w.server = &Server{
		ReadHeaderTimeout: patience, IdleTimeout: patience, MaxHeaderBytes: 16 << 10,
		Handler: func(rw ResponseWriter, r *Request) {
			w.mu.Lock()
			w.calls++
			w.mu.Unlock()
			handler(rw, r)
		},
		Log: func(format string, args ...any) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.logs = append(w.logs, fmt.Sprintf(format, args...))
		},
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = w.server.Serve(l)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.server.Shutdown(ctx)
		<-over
	})
	return w
}

func echo(w ResponseWriter, r *Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(StatusBadRequest)
		body = []byte(err.Error())
	}
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
}

func (w *world) dial() *net.UnixConn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

// exchange sends bytes, half-closes and returns everything that comes back.
func (w *world) exchange(text string) string {
	w.t.Helper()
	conn := w.dial()
	_, _ = io.WriteString(conn, text)
	_ = conn.CloseWrite()
	got, err := io.ReadAll(conn)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		w.t.Fatalf("no end of the answer to %.80q, got %.200q", text, got)
	}
	return string(got)
}

func answer(t *testing.T, in *bufio.Reader) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	w := serve(t, echo)
	for _, text := range []string{
		"nonsense\r\n\r\n",
		"GET /\r\n\r\n",
		"GET / HTTP/2.0\r\n\r\n",
		"GET  HTTP/1.1\r\n\r\n",
		"GET x HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nno colon\r\n\r\n",
		"GET / HTTP/1.1\r\nBad Name: x\r\n\r\n",
		"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
		"GET / HTTP/1.1\r\n: x\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
		"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
		"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		if got := w.exchange(text); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%q: %.100q", text, got)
		}
	}
	if w.calls != 0 {
		t.Errorf("%d of them reached the handler", w.calls)
	}
}

func TestHeaderFloodIsRefused(t *testing.T) {
	w := serve(t, echo)
	line := strings.Repeat("a", 1000)
	for name, text := range map[string]string{
		"one long line": "GET /" + strings.Repeat("x", 32<<10) + " HTTP/1.1\r\n\r\n",
		"one long name": "GET / HTTP/1.1\r\n" + strings.Repeat("x", 32<<10),
		"many lines":    "GET / HTTP/1.1\r\n" + strings.Repeat(line+": 1\r\n", 32) + "\r\n",
		"empty lines":   strings.Repeat("\r\n", 16<<10),
	} {
		if got := w.exchange(text); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
			t.Errorf("%s: %.100q", name, got)
		}
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	w := serve(t, echo)
	conn := w.dial()
	var all strings.Builder
	for i := range 50 {
		fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", i)
	}
	go func() { _, _ = io.WriteString(conn, all.String()) }()
	in := bufio.NewReader(conn)
	for i := range 50 {
		if status, body := answer(t, in); status != 200 || body != fmt.Sprintf("POST /%d abc", i) {
			t.Fatalf("%d: %d %q", i, status, body)
		}
	}
}

func TestAnUnreadBodyDoesNotBecomeARequest(t *testing.T) { // smuggling
	w := serve(t, func(rw ResponseWriter, r *Request) { _, _ = io.WriteString(rw, r.URL.Path) })
	inner := "GET /inner HTTP/1.1\r\n\r\n"
	got := w.exchange(fmt.Sprintf("POST /outer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%sGET /next HTTP/1.1\r\n\r\n", len(inner), inner))
	if strings.Contains(got, "/inner") || !strings.Contains(got, "/outer") || !strings.Contains(got, "/next") {
		t.Errorf("%q", got)
	}
}

func TestChunkedBodies(t *testing.T) {
	w := serve(t, echo)
	const head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	for body, want := range map[string]string{
		"0\r\n\r\n":                              "200 POST / ",
		"3\r\nabc\r\n0\r\n\r\n":                  "200 POST / abc",
		"3;ext=\"1\"\r\nabc\r\n2\r\nde\r\n0\r\n": "200 POST / abcde", // completed below
		"A\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n": "200 POST / 0123456789",
		"-1\r\nabc\r\n":                          "400",
		"zz\r\nabc\r\n":                          "400",
		"ffffffffffffffff\r\nabc":                "400",
		"3\r\nabcX\r\n0\r\n\r\n":                 "400",
		"5\r\nab":                                "400",
		strings.Repeat("1", 20<<10):              "400",
	} {
		if strings.Contains(body, "ext=") {
			body += "\r\n"
		}
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(w.exchange(head+body))), nil)
		if err != nil {
			t.Errorf("%.40q: %v", body, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		if got := fmt.Sprintf("%d %s", resp.StatusCode, text); !strings.HasPrefix(got, want) {
			t.Errorf("%.40q: %q, want %q", body, got, want)
		}
	}
}

func TestContinueIsSentWhenTheBodyIsWanted(t *testing.T) {
	w := serve(t, func(rw ResponseWriter, r *Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(StatusForbidden)
			return
		}
		echo(rw, r)
	})
	conn := w.dial()
	_, _ = io.WriteString(conn, "POST /yes HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatal(line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "ok")
	if status, body := answer(t, in); status != 200 || body != "POST /yes ok" {
		t.Fatal(status, body)
	}
	got := w.exchange("POST /no HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	if strings.Contains(got, "100 Continue") || !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("%q", got)
	}
}

func TestHalfClosedClientGetsItsAnswer(t *testing.T) {
	release := make(chan struct{})
	w := serve(t, func(rw ResponseWriter, r *Request) {
		<-release
		_, _ = io.WriteString(rw, "late")
	})
	conn := w.dial()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	_ = conn.CloseWrite()
	close(release)
	if status, body := answer(t, bufio.NewReader(conn)); status != 200 || body != "late" {
		t.Error(status, body)
	}
}

func TestDepartureEndsTheContext(t *testing.T) {
	ended := make(chan error, 1)
	begun := make(chan struct{})
	w := serve(t, func(_ ResponseWriter, r *Request) {
		_, _ = io.ReadAll(r.Body)
		close(begun)
		select {
		case <-r.Context().Done():
			ended <- nil
		case <-time.After(patience):
			ended <- errors.New("the context lives on")
		}
	})
	conn := w.dial()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
	<-begun
	_ = conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestUploadCutOffIsAnError(t *testing.T) {
	failed := make(chan error, 1)
	w := serve(t, func(_ ResponseWriter, r *Request) {
		_, err := io.Copy(io.Discard, r.Body)
		failed <- err
	})
	conn := w.dial()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc")
	_ = conn.Close()
	select {
	case err := <-failed:
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("the handler waits for ever")
	}
}

func TestPanicsAreContained(t *testing.T) {
	w := serve(t, func(rw ResponseWriter, r *Request) {
		if r.URL.Path == "/panic" {
			panic("boom")
		}
		_, _ = io.WriteString(rw, "alive")
	})
	if got := w.exchange("GET /panic HTTP/1.1\r\n\r\n"); got != "" {
		t.Errorf("%q", got)
	}
	if got := w.exchange("GET / HTTP/1.1\r\n\r\n"); !strings.HasSuffix(got, "alive") {
		t.Errorf("%q", got)
	}
	if len(w.logs) != 1 || !strings.Contains(w.logs[0], "boom") {
		t.Error(w.logs)
	}
}

func TestHeaderValuesCannotSplitTheAnswer(t *testing.T) {
	w := serve(t, func(rw ResponseWriter, _ *Request) {
		rw.Header().Set("X-Echo", "a\r\nX-Injected: 1")
	})
	if got := w.exchange("GET / HTTP/1.1\r\n\r\n"); strings.Contains(got, "\r\nX-Injected") {
		t.Errorf("%q", got)
	}
}

func TestOldClientsGetNoChunks(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	w := serve(t, func(rw ResponseWriter, _ *Request) { _, _ = io.WriteString(rw, long) })
	got := w.exchange("GET / HTTP/1.0\r\n\r\n")
	if strings.Contains(got, "chunked") || !strings.HasSuffix(got, "\r\n\r\n"+long) {
		t.Errorf("%.200q", got)
	}
}

func TestRanges(t *testing.T) {
	content := []byte("0123456789")
	w := serve(t, func(rw ResponseWriter, r *Request) {
		ServeContent(rw, r, int64(len(content)), time.Unix(1e9, 0), bytes.NewReader(content))
	})
	for spec, want := range map[string]string{
		"bytes=0-0": "206 0", "bytes=2-4": "206 234", "bytes=8-": "206 89", "bytes=-3": "206 789", "bytes=5-99": "206 56789",
		"bytes=10-": "416 ", "bytes=-0": "416 ", "bytes=4-2": "200 0123456789", "bytes=0-1,3-4": "200 0123456789",
		"lines=1-2": "200 0123456789", "bytes=x-": "200 0123456789",
		"bytes=99999999999999999999-": "200 0123456789",
	} {
		raw := w.exchange("GET / HTTP/1.1\r\nRange: " + spec + "\r\n\r\n")
		status, body := answer(t, bufio.NewReader(strings.NewReader(raw)))
		if got := fmt.Sprintf("%d %s", status, body); got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func TestShutdownWaitsForHandlers(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	w := serve(t, func(rw ResponseWriter, _ *Request) {
		close(begun)
		<-release
		_, _ = io.WriteString(rw, "done")
	})
	conn, idle := w.dial(), w.dial()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	<-begun
	over := make(chan struct{})
	go func() {
		w.server.Shutdown(context.Background())
		close(over)
	}()
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
	close(release)
	if _, body := answer(t, bufio.NewReader(conn)); body != "done" {
		t.Error(body)
	}
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("no end")
	}
}

// FuzzServer sends arbitrary bytes: the server must neither panic nor hang,
// and what it says must be HTTP.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"POST /x?y=%41 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: 1\r\n\r\n",
		"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
		"HEAD / HTTP/1.1\r\nConnection: close\r\nRange: bytes=1-2\r\n\r\n",
		"GET http://u@h:1/%zz HTTP/1.1\r\nAuthorization: Basic YTpi\r\n\r\n",
		"\r\n\n\r\nGET / HTTP/1.1\nA:b\n\n", "\x00\xff", ": : :\r\n",
	} {
		f.Add([]byte(seed))
	}
	w := serve(f, func(rw ResponseWriter, r *Request) {
		_, _, _ = r.BasicAuth()
		switch len(r.URL.Path) % 3 {
		case 0:
			ServeContent(rw, r, 5, time.Unix(1e9, 0), strings.NewReader("hello"))
		case 1:
			_ = r.Context()
			echo(rw, r)
		}
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("unix", w.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		go func() {
			_, _ = conn.Write(data)
			_ = conn.(*net.UnixConn).CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			t.Fatalf("no end after %q", got)
		}
		if len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.1 ")) {
			t.Fatalf("%q", got)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.logs) > 0 {
			t.Fatal(w.logs)
		}
	})
}
