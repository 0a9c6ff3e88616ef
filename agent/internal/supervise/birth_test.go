package supervise

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tupper.dev/agent/internal/pty"
)

// ids reads what a child printed with `echo $$ $(ps …)`-like scripts: numbers.
func ids(t *testing.T, line string) []int {
	t.Helper()
	var list []int
	for _, word := range strings.Fields(line) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, n)
	}
	return list
}

func TestACommandThatIsApartDoesNotLeadItsGroup(t *testing.T) {
	child, out := startApart(t, "sh", "-c", `read -r line </proc/$$/stat; echo ${line##*) }`)
	fields := strings.Fields(text(t, out))
	status(t, child.Exit)
	if len(fields) < 4 {
		t.Fatal(fields)
	}
	got := ids(t, strings.Join(fields[1:4], " ")) // parent, group, session
	if got[0] != os.Getpid() || got[1] != child.Group || got[2] != child.Group || child.Group == child.PID {
		t.Errorf("%+v has parent, group and session %v; we are %d", child, got, os.Getpid())
	}
	for stop := time.Now().Add(patience); syscall.Kill(child.Group, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatal("the holder of its group is still there")
		}
	}
}

// setsid(1) forks, and ends at once, when it leads a group.
func TestSetsidStaysInTheForeground(t *testing.T) {
	child, out := startApart(t, "setsid", "sh", "-c", `echo $$; read -r line </proc/$$/stat; echo ${line##*) }; exit 7`)
	fields := strings.Fields(text(t, out))
	if s := status(t, child.Exit); s.ExitStatus() != 7 {
		t.Errorf("%v: it ended before its program did", s)
	}
	if got := ids(t, fields[0]+" "+fields[4]); got[0] != child.PID || got[1] != child.PID {
		t.Errorf("%+v: pid and session are %v", child, got)
	}
}

func TestSignalsReachALeaderThatLeftItsGroup(t *testing.T) {
	for name, script := range map[string]string{
		"at home":            `trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done`,
		"in its own session": `exec setsid sh -c 'trap "exit 9" TERM; echo up; while :; do sleep 0.01; done'`,
	} {
		child, out := startApart(t, "sh", "-c", script)
		_ = out.SetReadDeadline(time.Now().Add(patience))
		if _, err := out.Read(make([]byte, 3)); err != nil {
			t.Fatal(name, err)
		}
		tree := Tree{Leader: child.PID, Group: child.Group}
		if err := tree.Signal(syscall.SIGTERM); err != nil {
			t.Error(name, err)
		}
		if s := status(t, child.Exit); s.ExitStatus() != 9 {
			t.Error(name, s)
		}
		if err := tree.Signal(syscall.SIGTERM); err != nil {
			t.Error(name, "is over:", err)
		}
	}
}

func TestKillEndsALeaderThatLeftItsGroup(t *testing.T) {
	script := `sleep 997 & exec setsid sh -c 'sleep 997 & echo up; wait'`
	child, out := startApart(t, "sh", "-c", script) // no marker: by session and group alone
	_ = out.SetReadDeadline(time.Now().Add(patience))
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	tree := Tree{Leader: child.PID, Group: child.Group}
	if got := len(tree.Members()); got != 3 {
		t.Errorf("%d members: %v", got, tree.Members())
	}
	if !tree.Kill(context.Background()) {
		t.Error("not all are gone")
	}
	if s := status(t, child.Exit); s.Signal() != syscall.SIGKILL {
		t.Error(s)
	}
}

func TestACommandLeadsItsGroup(t *testing.T) {
	child, out := start(t, nil, UsualUmask, "sh", "-c", `read -r line </proc/$$/stat; echo ${line##*) }`)
	fields := strings.Fields(text(t, out))
	status(t, child.Exit)
	if got := ids(t, strings.Join(fields[1:4], " ")); got[0] != os.Getpid() || got[1] != child.PID || got[2] != child.PID {
		t.Errorf("%+v has parent, group and session %v; we are %d", child, got, os.Getpid())
	}
}

// A pipeline's writer must die of SIGPIPE, and a terminal's programs of SIGHUP.
func TestNoSignalIsIgnoredOrBlocked(t *testing.T) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGHUP, syscall.SIGPIPE)
	child, out := start(t, nil, UsualUmask, "cat", "/proc/self/status")
	for line := range strings.Lines(text(t, out)) {
		kind, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if kind != "SigBlk" && kind != "SigIgn" {
			continue
		}
		set, err := strconv.ParseUint(value, 16, 64)
		if err != nil {
			t.Fatal(line, err)
		}
		for _, sig := range append(usual[:], syscall.SIGCHLD, syscall.SIGUSR2) {
			if set&(1<<(sig-1)) != 0 {
				t.Errorf("%s is in %s", sig, kind)
			}
		}
	}
	status(t, child.Exit)
}

func TestATerminalIsLedByItsCommand(t *testing.T) {
	master, slave, err := pty.Open(pty.Size{Rows: 24, Cols: 80}, 0, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	defer syscall.Close(slave)
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	fd := uintptr(slave)
	child, err := reaper().Start(&Command{
		Path: path, Argv: []string{"sh", "-c", `exec 3<>/dev/tty && echo tty`}, Env: []string{"PATH=" + os.Getenv("PATH")},
		Files: []uintptr{fd, fd, fd}, Umask: UsualUmask, Terminal: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	n, err := master.Read(buf)
	if err != nil || strings.TrimSpace(string(buf[:n])) != "tty" {
		t.Errorf("%q %v", buf[:n], err)
	}
	status(t, child.Exit)
	if child.Group != child.PID {
		t.Errorf("%+v", child)
	}
}

// Descriptors that lie where the child's shall be must not be overwritten
// before they are copied.
func TestDescriptorsMayOverlap(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	files := make([]uintptr, w.Fd()+2) // its number is below the last of the child's
	for i := range files {
		files[i] = w.Fd()
	}
	child, err := reaper().Start(&Command{
		Path: path, Argv: []string{"sh", "-c", "echo 0 >&0; echo 1; echo 2 >&2"}, Files: files, Umask: UsualUmask,
	})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, r); got != "0\n1\n2\n" {
		t.Errorf("%q", got)
	}
	status(t, child.Exit)
}

func TestStartReportsAMissingDirectory(t *testing.T) {
	_, err := reaper().Start(&Command{Path: "/bin/sh", Argv: []string{"sh"}, Dir: "/nonexistent", Umask: UsualUmask})
	if err != syscall.ENOENT {
		t.Error(err)
	}
}
