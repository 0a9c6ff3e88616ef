package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/supervise"
	"tupper.dev/agent/internal/user"
)

// maxArg is the longest single argument of execve.
// Source: Linux, include/uapi/linux/binfmts.h, MAX_ARG_STRLEN less the NUL.
const maxArg = 131071

// scriptFd is where a script too long for an argument is handed over.
const scriptFd = 3

// command is what is executed for a Config.
type command struct {
	path   string
	argv   []string
	script *os.File // non-nil: must become descriptor scriptFd
}

func (c *command) close() {
	if c.script != nil {
		_ = c.script.Close()
	}
}

// build turns a Config into a command.
//
// A shell that is asked for a login (`-l`) reads /etc/profile, and that sets
// PATH anew on most distributions, so the PATH of the image would be lost. The
// script therefore begins with a few `case`s, on its first line so that line
// numbers stay, that put back those entries, and only those, that the profile
// dropped. An interactive login shell does the same and then becomes the
// interactive shell.
//
// A script longer than maxArg is put into an anonymous file and read with `.`;
// its first act is to close the descriptor, so children do not see it.
//
// An image without bash gets /bin/sh, as a login shell by the "-" before its
// name, which every shell understands.
func build(cfg *Config, env map[string]string, account *user.Account, cwd string) (*command, error) {
	c := &command{argv: append([]string{cfg.Cmd}, cfg.Args...)}
	if err := c.find(cfg.Cmd, env["PATH"], cwd); err != nil {
		return nil, err
	}
	if shell := parseShell(c.argv); shell != nil {
		c.restorePath(shell, env["PATH"])
		if err := c.offload(shell, account); err != nil {
			return nil, err
		}
	}
	for _, arg := range c.argv {
		if len(arg) > maxArg {
			c.close()
			return nil, connect.Errorf(connect.InvalidArgument,
				"an argument of %d bytes is longer than the limit of %d bytes", len(arg), maxArg)
		}
		if strings.IndexByte(arg, 0) >= 0 {
			c.close()
			return nil, connect.Errorf(connect.InvalidArgument, "an argument contains a NUL byte")
		}
	}
	return c, nil
}

func startFailure(name string, exitCode int, reason string) error {
	return connect.Errorf(connect.InvalidArgument, "error starting process '%s': %s", name, reason).
		With("tupper.StartFailure", map[string]int{"exitCode": exitCode})
}

func (c *command) find(name, path, cwd string) error {
	found, err := lookPath(name, path, cwd)
	if err == nil {
		c.path = found
		return nil
	}
	bash := name == "bash" || name == "/bin/bash" || name == "/usr/bin/bash"
	if bash && errors.Is(err, syscall.ENOENT) {
		if sh, shErr := lookPath("/bin/sh", path, cwd); shErr == nil {
			c.path = sh
			c.becomeSh()
			return nil
		}
	}
	return describeStart(name, err)
}

// becomeSh drops the login option in favour of a name that begins with "-".
func (c *command) becomeSh() {
	c.argv[0] = "sh"
	for i := 1; i < len(c.argv) && strings.HasPrefix(c.argv[i], "-"); i++ {
		if c.argv[i] == "-l" || c.argv[i] == "--login" {
			c.argv[0] = "-sh"
			c.argv = slices.Delete(c.argv, i, i+1)
			i--
		} else if c.argv[i] == "-c" {
			return
		}
	}
}

func describeStart(name string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return startFailure(name, 126, err.Error())
	}
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return startFailure(name, 127, "no such file or directory")
	case syscall.EISDIR:
		return startFailure(name, 126, "is a directory")
	case syscall.E2BIG:
		return startFailure(name, 126, "the arguments and the environment together are longer than the system's limit (ARG_MAX, usually 2097152 bytes)")
	case syscall.ENOEXEC:
		return startFailure(name, 126, "exec format error")
	case syscall.ENAMETOOLONG:
		return startFailure(name, 127, "name too long")
	}
	return startFailure(name, 126, errno.Error())
}

// lookPath finds an executable the way execvp does, with the PATH the command
// will have.
func lookPath(name, path, cwd string) (string, error) {
	if name == "" {
		return "", syscall.ENOENT
	}
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(full) {
			full = filepath.Join(cwd, full)
		}
		return full, executable(full)
	}
	var first error = syscall.ENOENT
	for _, dir := range strings.Split(path, ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		full := filepath.Join(dir, name)
		err := executable(full)
		if err == nil {
			return full, nil
		}
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR) && errors.Is(first, syscall.ENOENT) {
			first = err
		}
	}
	return "", first
}

func executable(path string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return syscall.EISDIR
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Mode&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}

// shell is a recognised shell invocation inside an argv.
type shell struct {
	login       bool
	interactive bool
	script      int // index in argv of the text after -c; 0 = none
}

// parseShell recognises `sh -l -c TEXT`, `bash -lc TEXT`, `bash -i -l` and the
// like; nil for everything else.
func parseShell(argv []string) *shell {
	base := filepath.Base(argv[0])
	s := &shell{login: strings.HasPrefix(base, "-")}
	switch strings.TrimPrefix(base, "-") {
	case "bash", "sh", "dash", "ash", "zsh", "ksh":
	default:
		return nil
	}
	for i := 1; i < len(argv); i++ {
		arg := argv[i]
		if arg == "--login" {
			s.login = true
			continue
		}
		if len(arg) < 2 || arg[0] != '-' || arg[1] == '-' {
			return nil // a script file or an option we do not know
		}
		s.login = s.login || strings.Contains(arg, "l")
		s.interactive = s.interactive || strings.Contains(arg, "i")
		if strings.HasSuffix(arg, "o") {
			i++
		} else if strings.Contains(arg, "c") {
			if i+1 >= len(argv) {
				return nil
			}
			s.script = i + 1
			return s
		}
	}
	return s
}

// restorePath adds the prefix described at build.
func (c *command) restorePath(s *shell, path string) {
	if !s.login || path == "" {
		return
	}
	fix := pathFix(path)
	if fix == "" {
		return
	}
	if s.script > 0 {
		c.argv[s.script] = fix + c.argv[s.script]
		return
	}
	if s.interactive {
		text := fix + "exec " + quote(c.path) + " -i"
		c.argv = []string{c.argv[0], "-l", "-c", text}
		if strings.HasPrefix(c.argv[0], "-") {
			c.argv = []string{c.argv[0], "-c", text}
		}
		s.script = len(c.argv) - 1
	}
}

// systemDirs are what every /etc/profile sets or what only root needs; a PATH
// of nothing else needs no repair.
func systemDir(dir string) bool {
	switch dir {
	case "", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin":
		return true
	}
	return false
}

func pathFix(path string) string {
	var b strings.Builder
	dirs := strings.Split(path, ":")
	for _, dir := range slices.Backward(dirs) {
		if !systemDir(dir) {
			q := quote(dir)
			b.WriteString(`case ":$PATH:" in *:` + q + `:*);; *)PATH=` + q + `:$PATH;esac;`)
		}
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// offload moves a script that is too long into an anonymous file.
func (c *command) offload(s *shell, account *user.Account) error {
	if s.script == 0 || len(c.argv[s.script]) <= maxArg {
		return nil
	}
	text := c.argv[s.script]
	if strings.IndexByte(text, 0) >= 0 {
		return connect.Errorf(connect.InvalidArgument, "an argument contains a NUL byte")
	}
	file, err := memfd("script")
	if err != nil {
		return connect.Errorf(connect.InvalidArgument,
			"a script of %d bytes is longer than the limit of %d bytes and cannot be passed by file: %v", len(text), maxArg, err)
	}
	head := "exec " + strconv.Itoa(scriptFd) + "<&-;"
	if _, err = file.WriteString(head + text); err == nil {
		err = file.Chown(int(account.UID), int(account.GID))
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("write the script: %w", err)
	}
	c.script = file
	c.argv[s.script] = ". /proc/self/fd/" + strconv.Itoa(scriptFd)
	return nil
}

// becomesSetsid says whether a command's leader will be setsid(1), as it is or
// because a shell executes its last command in its own place. These do not lead
// their group (see supervise.IsSetsid).
//
// Only these, and only while they have no children: gVisor (20240729) hangs, all
// of it, when a process with a child in its own group calls setsid(2) and
// nobody else of the session is the parent of somebody in that group. It locks
// the caller's signal handlers twice. So a script that puts anything into the
// background is left alone; its setsid ends at once.
// Source: gvisor, pkg/sentry/kernel/sessions.go, createSession and handleOrphan.
func becomesSetsid(argv []string) bool {
	if supervise.IsSetsid(argv[0]) {
		return true
	}
	s := parseShell(argv)
	if s == nil || s.script == 0 {
		return false
	}
	text := argv[s.script]
	return commandIn(text, "setsid") && !mayFork(text)
}

// commandIn says whether a script has a command of this name, as far as that
// can be seen without a shell's grammar.
func commandIn(script, name string) bool {
	for rest := script; ; {
		before, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		rest = after
		if after != "" && !strings.ContainsAny(after[:1], " \t\n") {
			continue
		}
		before = script[:len(script)-len(after)-len(name)]
		if strings.HasSuffix(before, "/") {
			before = before[:strings.LastIndexAny(before, " \t\n;&|")+1]
		}
		if beginsCommand(strings.TrimRight(before, " \t")) {
			return true
		}
	}
}

// beginsCommand says whether what comes after this part of a script is a
// command's name.
func beginsCommand(before string) bool {
	if before == "" || strings.ContainsAny(before[len(before)-1:], ";&|{!\n") {
		return true
	}
	switch before[strings.LastIndexAny(before, " \t\n;&|")+1:] {
	case "exec", "then", "else", "do":
		return true
	}
	return false
}

// mayFork says whether a script may leave children behind while it goes on.
func mayFork(script string) bool {
	script = strings.NewReplacer("&&", "", ">&", "", "<&", "", "&>", "").Replace(script)
	return strings.Contains(script, "&") || strings.Contains(script, "<(") ||
		strings.Contains(script, ">(") || strings.Contains(script, "coproc")
}
