package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 20 * time.Second

var reaper = sync.OnceValue(func() *Reaper { return NewReaper(context.Background()) })

func TestMain(m *testing.M) {
	// A child of a test: print the umask, as no shell's builtin is needed for it.
	if len(os.Args) > 1 && os.Args[1] == "print-umask" {
		fmt.Printf("%03o", syscall.Umask(0))
		return
	}
	os.Exit(m.Run())
}

// start runs a program with its standard output in a pipe.
func start(t *testing.T, env []string, umask int, argv ...string) (Child, *os.File) {
	t.Helper()
	return run(t, &Command{Argv: argv, Env: env, Umask: umask})
}

// startApart starts one that leads neither its session nor its group.
func startApart(t *testing.T, argv ...string) (Child, *os.File) {
	t.Helper()
	return run(t, &Command{Argv: argv, Umask: UsualUmask, Apart: true})
}

func run(t *testing.T, c *Command) (Child, *os.File) {
	t.Helper()
	path, err := exec.LookPath(c.Argv[0])
	if err != nil {
		t.Skip(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c.Path, c.Env = path, append(c.Env, "PATH="+os.Getenv("PATH"))
	c.Files = []uintptr{null.Fd(), w.Fd(), w.Fd()}
	child, err := reaper().Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return child, r
}

func status(t *testing.T, exit <-chan Exit) syscall.WaitStatus {
	t.Helper()
	select {
	case e := <-exit:
		return e.Status
	case <-time.After(patience):
		t.Fatal("no exit")
		return 0
	}
}

func text(t *testing.T, r *os.File) string {
	t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(patience))
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

func TestEveryExitGoesToItsStarter(t *testing.T) {
	var all sync.WaitGroup
	for i := range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			child, _ := start(t, nil, UsualUmask, "sh", "-c", fmt.Sprintf("exit %d", i%250))
			if s := status(t, child.Exit); s.ExitStatus() != i%250 {
				t.Errorf("%d: %v", i, s)
			}
		}()
	}
	all.Wait()
}

func TestOrphansAreCollected(t *testing.T) {
	child, out := start(t, nil, UsualUmask, "sh", "-c", "sh -c 'echo $$; exec sleep 0.2' & exit 0")
	status(t, child.Exit)
	pid := strings.TrimSpace(text(t, out)) // the orphan holds the pipe until it dies
	for stop := time.Now().Add(patience); ; {
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(stop) {
			t.Fatal("the orphan is still there")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestStartReportsWhyExecFailed(t *testing.T) {
	_, err := reaper().Start(&Command{Path: "/nonexistent", Argv: []string{"x"}, Umask: UsualUmask})
	if !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
}

func TestUmaskIsTheChildsAlone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	usual := syscall.Umask(0o022)
	syscall.Umask(usual)
	for _, want := range []int{0o077, UsualUmask, 0o007, UsualUmask} {
		child, out := start(t, nil, want, self, "print-umask")
		got := text(t, out)
		status(t, child.Exit)
		if want == UsualUmask {
			want = usual
		}
		if got != fmt.Sprintf("%03o", want) {
			t.Errorf("%q, want %03o", got, want)
		}
	}
}

func TestChildrenDoNotHaveTheAgentsNiceValue(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	child, out := start(t, nil, UsualUmask, "sh", "-c", "nice")
	if got := strings.TrimSpace(text(t, out)); got != "0" {
		t.Error(got)
	}
	status(t, child.Exit)
}

func TestChildrenCannotRaiseTheirLimits(t *testing.T) {
	if os.Getuid() != 0 || !holdsCapability(capSysResource) {
		t.Skip("needs root with CAP_SYS_RESOURCE")
	}
	child, out := start(t, nil, UsualUmask, "grep", "CapBnd", "/proc/self/status")
	line := strings.Fields(text(t, out))
	status(t, child.Exit)
	var bounds uint64
	if len(line) != 2 {
		t.Fatal(line)
	}
	if _, err := fmt.Sscanf(line[1], "%x", &bounds); err != nil || bounds&(1<<capSysResource) != 0 {
		t.Errorf("%v %v", line, err)
	}
}

// TestKillFindsTheWholeTree: children that left the session, or lost their
// parents, or both.
func TestKillFindsTheWholeTree(t *testing.T) {
	script := `sleep 997 & setsid sleep 997 & (setsid sh -c 'sleep 997 & sleep 997' &) ; echo up; wait`
	child, out := start(t, []string{Marker + "=killtest"}, UsualUmask, "sh", "-c", script)
	buf := make([]byte, 2)
	if _, err := out.Read(buf); err != nil {
		t.Fatal(err)
	}
	tree := Tree{Leader: child.PID, Group: child.Group, ID: "killtest"}
	for stop := time.Now().Add(patience); len(tree.Members()) < 6; time.Sleep(time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatal(tree.Members())
		}
	}
	if !tree.Kill(context.Background()) {
		t.Error("not all are gone")
	}
	if s := status(t, child.Exit); s.Signal() != syscall.SIGKILL {
		t.Error(s)
	}
	if left := tree.Members(); len(left) > 0 {
		t.Error(left)
	}
}

func TestKillEndsAForkBomb(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	// A bomb of bounded size: 2 to the 6th processes at a time, without end.
	script := `f() { if [ $1 -gt 0 ]; then f $(($1-1)) & f $(($1-1)) & fi; wait; }; echo up; while :; do f 5; done`
	child, out := start(t, []string{Marker + "=bombtest"}, UsualUmask, "sh", "-c", script)
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	tree := Tree{Leader: child.PID, Group: child.Group, ID: "bombtest"}
	if !tree.Kill(context.Background()) {
		t.Error("it lives")
	}
	status(t, child.Exit)
}

func TestParseStat(t *testing.T) {
	for line, want := range map[string]Proc{
		"7 (a) S 1 2 3 0 -1 4 0 0 0 0 0 0 0 0 20 0 9 0": {PID: 7, State: 'S', PPID: 1, Group: 2, Session: 3, Threads: 9},
		"7 (a b) c) R 4 5 6":                            {PID: 7, State: 'R', PPID: 4, Group: 5, Session: 6, Threads: 1},
	} {
		if got, ok := parseStat(7, []byte(line)); !ok || got != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
	for _, line := range []string{"", "7 (a", "7 (a) S", "7 (a) SS 1 2 3"} {
		if _, ok := parseStat(7, []byte(line)); ok {
			t.Errorf("%q is accepted", line)
		}
	}
}

func TestParseStatKnowsKernelThreads(t *testing.T) {
	for line, want := range map[string]bool{
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0":           true,
		"9 (kworker/0:0) I 2 0 0 0 -1 69238880 0 0":       true,
		"9 (a 2 0 0 0 -1 2129984) S 2 9 9 0 -1 4194304 0": false,
		"9 (sh) S 2 9 9 0 0 0 0 0":                        false, // as gVisor says it
		"9 (sh) S 2 9 9":                                  false,
	} {
		if row, ok := parseStat(9, []byte(line)); !ok || row.Kernel != want {
			t.Errorf("%q: %+v, kernel thread expected: %v", line, row, want)
		}
	}
}

func TestOthersAreWhateverTheirParentIs(t *testing.T) {
	table := []Proc{
		{PID: 1, State: 'S'},
		{PID: 2, PPID: 1, State: 'S'}, // a command that happens to have this pid
		{PID: 3, PPID: 2, State: 'R'}, // and its child
		{PID: 4, PPID: 2, State: 'I', Kernel: true},
		{PID: 5, PPID: 1, State: 'Z'},
		{PID: 6, PPID: 1, State: 'S'},
		{PID: 7, PPID: 6, State: 'R'}, // this one
		{PID: 8, PPID: 0, State: 'R'}, // of the host
	}
	if got := others(table, 7); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("others: %v", got)
	}
	if got := others(table, 1); !slices.Equal(got, []int{2, 3, 6, 7}) {
		t.Errorf("others of PID 1: %v", got)
	}
}

func TestBiggestSession(t *testing.T) {
	table := []Proc{
		{PID: 1, Session: 1, Threads: 99}, {PID: os.Getpid(), Session: 5, Threads: 99}, {PID: 10, Session: 10, Threads: 3},
		{PID: 11, Session: 10, Threads: 1, State: 'Z'}, {PID: 12, Session: 12, Threads: 2}, {PID: 13, Session: 12, Threads: 2},
	}
	if session, threads := Biggest(table); session != 12 || threads != 4 {
		t.Error(session, threads)
	}
}

func TestHungriest(t *testing.T) {
	script := `x=$(head -c 64000000 /dev/zero | tr '\0' x); echo up; sleep 60`
	child, out := start(t, nil, UsualUmask, "sh", "-c", script)
	_ = out.SetReadDeadline(time.Now().Add(patience))
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	_, resident := Hungriest()
	if resident < 64000000 {
		t.Error(resident)
	}
	_ = syscall.Kill(-child.Group, syscall.SIGKILL)
	status(t, child.Exit)
}
