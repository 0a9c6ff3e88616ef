package server

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/supervise"
)

// reaper is shared: a process has one.
var reaper = sync.OnceValue(func() *supervise.Reaper { return supervise.NewReaper(context.Background()) })

type agent struct {
	t      *testing.T
	client *http.Client
	socket string
	server *Server
}

// begin runs a server in this process and ends it with the test.
func begin(t *testing.T, change func(*settings.Config)) *agent {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	socket := filepath.Join(t.TempDir(), "a.sock")
	config := &settings.Config{
		Listen: settings.Listen{"unix:" + socket}, AccessToken: "tok", SandboxID: "i1", DefaultUser: "root",
		DefaultWorkdir: "/",
		EnvVars:        map[string]string{"PATH": "/opt/venv/bin:" + settings.DefaultPath},
	}
	if change != nil {
		change(config)
	}
	s := New(config, reaper(), nil, &Ring{})
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Run(ctx, opened)
	}()
	t.Cleanup(func() {
		s.requestStop(stopRequest{grace: 10 * time.Millisecond, why: "test"})
		select {
		case <-over:
		case <-time.After(10 * time.Second):
			t.Error("the server does not end")
		}
		cancel()
	})
	a := &agent{t: t, socket: socket, server: s}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}, DisableCompression: true}
	a.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	for i := 0; ; i++ {
		// The file is there from bind on; connections are taken from listen on.
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return a
		}
		if i > 5000 {
			t.Fatal("the server does not listen")
		}
		time.Sleep(time.Millisecond)
	}
}

func (a *agent) do(method, path string, body []byte, headers ...string) (int, http.Header, []byte) {
	a.t.Helper()
	req, err := http.NewRequest(method, "http://x"+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("X-Access-Token", "tok")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, data
}

func (a *agent) unary(rpc string, message any) (int, map[string]any) {
	a.t.Helper()
	body, _ := json.Marshal(message)
	status, _, data := a.do("POST", rpc, body, "Content-Type", "application/json")
	answer := map[string]any{}
	if err := json.Unmarshal(data, &answer); err != nil {
		a.t.Fatalf("%s: %v: %q", rpc, err, data)
	}
	return status, answer
}

func envelope(message any) []byte {
	body, _ := json.Marshal(message)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

type result struct {
	stdout, stderr, pty string
	pid                 int
	end                 map[string]any
	fail                map[string]any
}

func collect(t *testing.T, data []byte) *result {
	t.Helper()
	r := &result{}
	for len(data) > 0 {
		n := int(binary.BigEndian.Uint32(data[1:]))
		var m struct {
			Event struct {
				Start *struct{ Pid int }
				Data  *struct{ Stdout, Stderr, Pty []byte }
				End   map[string]any
			}
			Error map[string]any
		}
		if err := json.Unmarshal(data[5:5+n], &m); err != nil {
			t.Fatal(err)
		}
		if m.Event.Start != nil {
			r.pid = m.Event.Start.Pid
		}
		if d := m.Event.Data; d != nil {
			r.stdout, r.stderr, r.pty = r.stdout+string(d.Stdout), r.stderr+string(d.Stderr), r.pty+string(d.Pty)
		}
		if m.Event.End != nil {
			r.end = m.Event.End
		}
		if m.Error != nil {
			r.fail = m.Error
		}
		data = data[5+n:]
	}
	return r
}

func (a *agent) start(message map[string]any, headers ...string) *result {
	a.t.Helper()
	headers = append([]string{"Content-Type", "application/connect+json"}, headers...)
	status, _, data := a.do("POST", "/process.Process/Start", envelope(message), headers...)
	if status != 200 {
		a.t.Fatalf("status %d: %s", status, data)
	}
	return collect(a.t, data)
}

func (a *agent) run(script string, headers ...string) *result {
	a.t.Helper()
	return a.start(map[string]any{
		"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", script}}, "stdin": false,
	}, headers...)
}

func TestTokenGuardsEverythingButThree(t *testing.T) {
	a := begin(t, nil)
	if status, _, _ := a.do("GET", "/health", nil, "X-Access-Token", ""); status != 204 {
		t.Errorf("health: %d", status)
	}
	for _, path := range []string{"/metrics", "/tupper/status", "/tupper/log", "/envs", "/nowhere"} {
		status, _, body := a.do("GET", path, nil, "X-Access-Token", "wrong")
		if status != 401 || !strings.Contains(string(body), `"code":401`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, _ := a.do("GET", "/tupper/status", nil); status != 200 {
		t.Errorf("status: %d", status)
	}
}

func TestCommandOutputAndExitCode(t *testing.T) {
	a := begin(t, nil)
	r := a.run("echo out; echo err >&2; exit 7")
	if r.stdout != "out\n" || r.stderr != "err\n" || r.end["exitCode"] != 7.0 || r.end["status"] != "exit status 7" {
		t.Errorf("%+v", r)
	}
	r = a.run("kill -9 $$")
	if r.end["exitCode"] != -1.0 || r.end["status"] != "signal: killed" || r.end["signal"] != 9.0 || r.end["exited"] != nil {
		t.Errorf("%+v", r)
	}
}

func TestBackgroundChildDoesNotHoldTheEnd(t *testing.T) { // TB001
	a := begin(t, nil)
	begun := time.Now()
	r := a.run("sleep 61 & echo started; echo $!")
	if took := time.Since(begun); took > time.Second || !strings.HasPrefix(r.stdout, "started\n") {
		t.Errorf("%v %+v", took, r)
	}
	a.run("kill " + strings.Fields(r.stdout)[1])
}

func TestNoByteIsLost(t *testing.T) { // TB003, TB005
	a := begin(t, nil)
	if r := a.run("seq 1 200000; sleep 62 >&2 & "); len(r.stdout) != 1288895 || !strings.HasSuffix(r.stdout, "\n200000\n") {
		t.Errorf("%d bytes", len(r.stdout))
	}
	if r := a.run("cat; read x; echo rc=$?"); r.stdout != "rc=1\n" {
		t.Errorf("%+v", r)
	}
	a.run("pkill -x -f 'sleep 62'")
}

func TestTimeLimitEndsTheWholeTree(t *testing.T) { // TB007, TB057
	a := begin(t, nil)
	dir := t.TempDir()
	begun := time.Now()
	script := fmt.Sprintf(`cd %s; keep() { echo $1 > $2; exec sleep 63; }
		(sh -c 'echo $$ > a; exec sleep 63' &)
		setsid sh -c 'echo $$ > b; trap "" TERM; sleep 63' &
		(setsid sh -c 'echo $$ > c; sleep 63 & sleep 63' &) ; trap "" TERM; sleep 63`, dir)
	r := a.run(script, "Connect-Timeout-Ms", "500")
	if r.fail["code"] != "deadline_exceeded" || time.Since(begun) > 5*time.Second {
		t.Errorf("%v %+v", time.Since(begun), r)
	}
	for _, name := range []string{"a", "b", "c"} {
		pid, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err == nil && !bytes.Contains(stat, []byte(") Z")) {
			t.Errorf("%s lives: %s", name, stat)
		}
	}
}

func TestLongScripts(t *testing.T) { // TB013
	a := begin(t, nil)
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		for _, n := range []int{131000, 131072, 2000000} {
			r := a.start(map[string]any{"process": map[string]any{"cmd": shell,
				"args": []string{"-c", "x='" + strings.Repeat("a", n) + "'; echo ${#x} $0 $1", "zero", "one"}}})
			if r.stdout != fmt.Sprintf("%d zero one\n", n) {
				t.Errorf("%s %d: %.100s %.200s %v", shell, n, r.stdout, r.stderr, r.fail)
			}
		}
	}
	r := a.start(map[string]any{"process": map[string]any{"cmd": "echo", "args": []string{strings.Repeat("a", 131072)}}})
	if r.fail["code"] != "invalid_argument" || !strings.Contains(r.fail["message"].(string), "131071") {
		t.Errorf("%v", r.fail)
	}
}

func TestStartFailures(t *testing.T) { // TB019
	a := begin(t, nil)
	for cmd, want := range map[string]string{"dsfsdfsf": "127", "/etc/passwd": "126", "/tmp": "126"} {
		r := a.start(map[string]any{"process": map[string]any{"cmd": cmd}})
		text, _ := json.Marshal(r.fail)
		if r.fail["code"] != "invalid_argument" || !bytes.Contains(text, []byte(cmd)) || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: %s", cmd, text)
		}
	}
}

// setsid(1) forks, and ends at once, where it leads a process group.
func TestSetsidStaysInTheForeground(t *testing.T) {
	a := begin(t, nil)
	if r := a.run("setsid sh -c 'sleep 0.3; echo done; exit 3'"); r.stdout != "done\n" || r.end["exitCode"] != 3.0 {
		t.Errorf("%+v", r)
	}
}

func TestImagePathSurvivesLoginShell(t *testing.T) { // TB021
	a := begin(t, nil)
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		r := a.start(map[string]any{"process": map[string]any{"cmd": shell, "args": []string{"-l", "-c", "echo $PATH; echo $HOME"}}})
		if !strings.HasPrefix(r.stdout, "/opt/venv/bin:") || !strings.HasSuffix(r.stdout, "\n/root\n") {
			t.Errorf("%s: %q %q", shell, r.stdout, r.stderr)
		}
	}
	auth := "Basic " + base64.StdEncoding.EncodeToString([]byte("1234:"))
	if r := a.run("id -u; echo $HOME; pwd", "Authorization", auth); !strings.HasPrefix(r.stdout, "1234\n/\n") {
		t.Errorf("%+v", r)
	}
	auth = "Basic " + base64.StdEncoding.EncodeToString([]byte("nosuchuser:"))
	if r := a.run("id", "Authorization", auth); r.fail["code"] != "unauthenticated" {
		t.Errorf("%+v", r)
	}
}

func TestExitCodesAreNeverStolen(t *testing.T) { // TB023
	a := begin(t, nil)
	storm := make(chan struct{})
	go func() {
		defer close(storm)
		a.run(`for i in $(seq 200); do (sh -c "sleep 0.02 & exit"); done`)
	}()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 15 {
				if r := a.run("exit 7"); r.end["exitCode"] != 7.0 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	all.Wait()
	<-storm
}

func TestPtySizeAndExit(t *testing.T) { // TB063
	a := begin(t, nil)
	r := a.start(map[string]any{
		"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "stty size; tty >/dev/null && echo $TERM; seq 1 20000; exit 5"}},
		"pty":     map[string]any{"size": map[string]any{"cols": 80, "rows": 24}},
	})
	if !strings.HasPrefix(r.pty, "24 80\r\nxterm-256color\r\n") || !strings.HasSuffix(r.pty, "\r\n20000\r\n") || r.end["exitCode"] != 5.0 {
		t.Errorf("%.60q … %v", r.pty, r.end)
	}
}

func (a *agent) background(script string) (pid int, read func() []byte, drop func()) {
	a.t.Helper()
	req, _ := http.NewRequest("POST", "http://x/process.Process/Start", bytes.NewReader(envelope(map[string]any{
		"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", script}}})))
	req.Header.Set("X-Access-Token", "tok")
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	var head [5]byte
	_, _ = io.ReadFull(resp.Body, head[:])
	first := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, _ = io.ReadFull(resp.Body, first)
	r := collect(a.t, append(head[:], first...))
	return r.pid, func() []byte { data, _ := io.ReadAll(resp.Body); return data }, func() { resp.Body.Close() }
}

func TestLargeStdin(t *testing.T) { // TB053
	a := begin(t, nil)
	pid, read, _ := a.background("wc -c")
	sel := map[string]any{"pid": pid}
	data := base64.StdEncoding.EncodeToString(make([]byte, 8<<20))
	if status, answer := a.unary("/process.Process/SendInput", map[string]any{"process": sel, "input": map[string]any{"stdin": data}}); status != 200 {
		t.Fatal(answer)
	}
	a.unary("/process.Process/CloseStdin", map[string]any{"process": sel})
	if r := collect(t, read()); strings.TrimSpace(r.stdout) != "8388608" {
		t.Errorf("%+v", r)
	}
}

func TestReattachFromOffset(t *testing.T) {
	a := begin(t, nil)
	pid, _, drop := a.background("echo one; read x; echo $x")
	drop()
	if status, list := a.unary("/process.Process/List", struct{}{}); status != 200 || len(list["processes"].([]any)) != 1 {
		t.Error(list)
	}
	a.unary("/process.Process/SendInput", map[string]any{"process": map[string]any{"pid": pid}, "input": map[string]any{"stdin": "dHdvCg=="}})
	_, _, data := a.do("POST", "/process.Process/Connect", envelope(map[string]any{
		"process": map[string]any{"pid": pid}, "tupper": map[string]any{"stdout": 2}}))
	if r := collect(t, data); r.stdout != "e\ntwo\n" || r.end["exited"] != true {
		t.Errorf("%+v", r)
	}
	_, _, data = a.do("POST", "/process.Process/Connect", envelope(map[string]any{"process": map[string]any{"pid": 999999}}))
	if r := collect(t, data); r.fail["code"] != "not_found" {
		t.Errorf("%+v", r)
	}
}

func TestFilesRoundTrip(t *testing.T) { // TB027, TB029, TB073
	a := begin(t, nil)
	dir := t.TempDir()
	for _, n := range []int{0, 1, 4096, 65537, 4<<20 + 1} {
		data := bytes.Repeat([]byte("abcdefg"), n/7+1)[:n]
		path := fmt.Sprintf("%s/p/q%d/f", dir, n)
		if status, _, body := a.do("POST", "/files?path="+path, data, "Content-Type", "application/octet-stream"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		status, _, got := a.do("GET", "/files?path="+path, nil)
		if status != 200 || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: status %d, %d came back", n, status, len(got))
		}
	}
	if _, _, got := a.do("GET", "/files?path=/proc/cpuinfo", nil); len(got) == 0 {
		t.Error("/proc/cpuinfo is empty")
	}
	for path, want := range map[string]int{"/dev/zero": 400, dir: 400, dir + "/nope": 404} {
		if status, _, body := a.do("GET", "/files?path="+path, nil); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := a.do("GET", "/files?path="+dir+"/p/q4096/f", nil, "Range", "bytes=2-4"); status != 206 || string(body) != "cde" {
		t.Errorf("%d %q", status, body)
	}
}

func TestSignedURL(t *testing.T) {
	a := begin(t, nil)
	status, _, body := a.do("GET", "/files?path=a.txt", nil, "X-Access-Token", "")
	if status != 401 || !strings.Contains(string(body), "missing signature") {
		t.Errorf("%d %s", status, body)
	}
	const late = "/files?path=a.txt&signature_expiration=1&signature="
	status, _, body = a.do("GET", late+signature("a.txt", "read", "1"), nil, "X-Access-Token", "")
	if status != 401 || string(body) != `{"code":401,"message":"signature is already expired"}` {
		t.Errorf("%d %s", status, body)
	}
}

func TestWatchSeesExactlyThree(t *testing.T) {
	a := begin(t, nil)
	dir := t.TempDir()
	_, made := a.unary("/filesystem.Filesystem/CreateWatcher", map[string]any{"path": dir, "recursive": true})
	fetch := func() string {
		_, answer := a.unary("/filesystem.Filesystem/GetWatcherEvents", made)
		var b strings.Builder
		list, _ := answer["events"].([]any)
		for _, e := range list {
			event := e.(map[string]any)
			fmt.Fprintf(&b, "%s:%s ", event["name"], strings.TrimPrefix(event["type"].(string), "EVENT_TYPE_"))
		}
		return b.String()
	}
	a.do("POST", "/files?path="+dir+"/f", []byte("hello"), "Content-Type", "application/octet-stream")
	if got := fetch(); got != "f:CREATE f:CHMOD f:WRITE " {
		t.Error(got)
	}
	a.unary("/filesystem.Filesystem/MakeDir", map[string]any{"path": dir + "/n"})
	a.do("POST", "/files?path="+dir+"/n/g", []byte("x"), "Content-Type", "application/octet-stream")
	if got := fetch(); !strings.Contains(got, "n:CREATE") || !strings.Contains(got, "n/g:WRITE") {
		t.Error(got)
	}
	var all string // a step a fetch: what is gone before it is seen cannot be watched
	for _, step := range []string{"mkdir -p a/b/c", "echo x > a/b/c/d", "mv a/b e", "echo y > e/c/f", "rm -r e"} {
		a.run("cd " + dir + " && " + step)
		all += fetch()
	}
	for _, want := range []string{"a/b/c:CREATE", "a/b/c/d:CREATE", "a/b:RENAME", "e/c/f:WRITE", "e:REMOVE"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s", want, all)
		}
	}
}

func TestTreeCannotEscape(t *testing.T) { // TB047
	a := begin(t, nil)
	dir := t.TempDir()
	outside := t.TempDir()
	for _, entries := range [][]tar.Header{
		{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/pwn", Typeflag: tar.TypeReg}},
		{{Name: "../pwn", Typeflag: tar.TypeReg}},
		{{Name: outside + "/pwn", Typeflag: tar.TypeReg}},
		{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for i := range entries {
			_ = w.WriteHeader(&entries[i])
		}
		_ = w.Close()
		if status, _, body := a.do("POST", "/tupper/tree?path="+dir, archive.Bytes()); status != 400 {
			t.Errorf("%s: %d %s", entries[len(entries)-1].Name, status, body)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("escaped: %v", left)
	}
}

func TestTunnel(t *testing.T) {
	a := begin(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		data, _ := io.ReadAll(c)
		fmt.Fprintf(c, "got %d", len(data))
		c.Close()
	}()
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /tupper/tunnel?port=%d HTTP/1.1\r\nHost: x\r\nX-Access-Token: tok\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly", l.Addr().(*net.TCPAddr).Port)
	_, _ = conn.Write(make([]byte, 100000))
	_ = conn.(*net.UnixConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 101 ")) || !bytes.HasSuffix(answer, []byte("got 100005")) {
		t.Errorf("%q", answer)
	}
	l.Close()
	status, _, body := a.do("GET", fmt.Sprintf("/tupper/tunnel?port=%d", l.Addr().(*net.TCPAddr).Port), nil, "Upgrade", "tcp", "Connection", "Upgrade")
	if status != 502 || !strings.Contains(string(body), "port is not open") {
		t.Errorf("%d %s", status, body)
	}
}

func TestCancelKills(t *testing.T) { // TB105
	a := begin(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://x/process.Process/Start", bytes.NewReader(envelope(map[string]any{
		"process": map[string]any{"cmd": "/bin/sleep", "args": []string{"64"}}})))
	req.Header.Set("X-Access-Token", "tok")
	req.Header.Set("Tupper-Cancel", "kill")
	if _, err := a.client.Do(req); err != nil {
		t.Fatal(err)
	}
	cancel()
	for i := 0; a.server.processes.Count() > 0; i++ {
		if i > 200 {
			t.Fatal("the command lives on")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestHoldKeepsOutput(t *testing.T) {
	a := begin(t, nil)
	pid, _, _ := a.background("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done")
	if status, _, body := a.do("POST", "/tupper/hold", []byte(`{"leaseMs":3000}`)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if _, err := net.Dial("unix", a.socket); err == nil {
		t.Error("a held agent listens")
	}
	for stop := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", a.socket) // its lease ends
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(stop) {
			t.Fatal(err)
		}
	}
	_, _, data := a.do("POST", "/process.Process/Connect", envelope(map[string]any{
		"process": map[string]any{"pid": pid}, "tupper": map[string]any{"stdout": 0}}))
	if r := collect(t, data); r.stdout != "1\n2\n3\n4\n5\n" {
		t.Errorf("%+v", r)
	}
}

func TestInitReplacesTokenAndEnv(t *testing.T) {
	a := begin(t, nil)
	status, h, _ := a.do("POST", "/init", []byte(`{"accessToken":"tok","envVars":{"A":"b","E2B_SANDBOX_ID":"no"},"defaultUser":"root"}`))
	if status != 204 || h.Get("X-Envd-Version") != EnvdVersion {
		t.Errorf("%d %v", status, h)
	}
	if r := a.run("echo $A $E2B_SANDBOX_ID"); r.stdout != "b i1\n" {
		t.Errorf("%+v", r)
	}
	if status, _, _ := a.do("POST", "/init", []byte(`{"accessToken":"other"}`), "X-Access-Token", ""); status != 401 {
		t.Errorf("%d", status)
	}
}

// Not "reboot": that would end the test's own processes too.
func TestHoldEndsWithTheHostsFile(t *testing.T) {
	a := begin(t, nil)
	if status, _, body := a.do("POST", "/tupper/hold", []byte(`{"leaseMs":60000}`)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if conn, err := net.Dial("unix", a.socket); err == nil {
		_ = conn.Close()
		t.Error("a held agent listens")
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(a.socket), releaseFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for stop := time.Now().Add(50 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", a.socket)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(stop) {
			t.Fatal(err)
		}
	}
}
