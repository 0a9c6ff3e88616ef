package sudo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tupper.dev/agent/internal/supervise"
	"tupper.dev/agent/internal/user"
)

const securePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// plan is a command ready to run.
type plan struct {
	path   string
	argv   []string
	env    []string
	cwd    string
	target *user.Account
}

// draw turns a request of caller into a plan. imagePath is the PATH of the
// image; what it has beyond sudo's usual PATH is appended to it.
func draw(users *user.Database, caller *user.Account, req *Request, imagePath string) (*plan, error) {
	target, err := users.Lookup(req.User)
	if err != nil {
		return nil, fmt.Errorf("unknown user %s", req.User)
	}
	if req.Group != "" {
		if target, err = users.Lookup(req.User + ":" + req.Group); err != nil {
			return nil, fmt.Errorf("unknown group %s", req.Group)
		}
	}
	p := &plan{target: target, cwd: req.Cwd}
	env := environment(caller, target, req, imagePath)
	shell := loginShell(target)
	switch {
	case req.Login:
		p.path, p.argv = shell, []string{"-" + filepath.Base(shell)}
		p.cwd = target.Home
	case req.Shell:
		if s := lookup(req.Env, "SHELL"); s != "" {
			shell = s
		}
		p.path, p.argv = shell, []string{shell}
	default:
		p.argv = req.Args
		if p.path, err = find(req.Args[0], env["PATH"], req.Cwd); err != nil {
			return nil, err
		}
	}
	if (req.Login || req.Shell) && len(req.Args) > 0 {
		p.argv = append(p.argv, "-c", escape(req.Args))
	}
	if info, err := os.Stat(p.cwd); err != nil || !info.IsDir() {
		p.cwd = "/"
	}
	env["SUDO_COMMAND"] = strings.Join(append([]string{p.path}, p.argv[1:]...), " ")
	if len(env["SUDO_COMMAND"]) > 4096 {
		env["SUDO_COMMAND"] = env["SUDO_COMMAND"][:4096]
	}
	for k, v := range env {
		p.env = append(p.env, k+"="+v)
	}
	slices.Sort(p.env)
	return p, nil
}

func loginShell(target *user.Account) string {
	if target.Shell != "" {
		if _, err := os.Stat(target.Shell); err == nil {
			return target.Shell
		}
	}
	return "/bin/sh"
}

// escape protects words for the shell's -c as sudo does: letters, digits, _, -
// and $ stay bare.
func escape(words []string) string {
	var b strings.Builder
	for i, word := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		for _, r := range word {
			bare := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '$' || r > 127
			switch {
			case r == '\n':
				b.WriteString("'\n'")
				continue
			case !bare:
				b.WriteByte('\\')
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

func lookup(env []string, name string) string {
	for _, entry := range env {
		if k, v, ok := strings.Cut(entry, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// kept lists the variables that survive without -E, as in sudo's env_keep.
func kept(name string) bool {
	switch name {
	case "TERM", "COLORTERM", "LANG", "LANGUAGE", "DISPLAY", "XAUTHORITY", "XAUTHORIZATION", "TZ", "PS1", "PS2", "LS_COLORS",
		"KRB5CCNAME", "HOSTNAME", supervise.Marker:
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

func environment(caller, target *user.Account, req *Request, imagePath string) map[string]string {
	env := map[string]string{}
	for _, entry := range req.Env {
		k, v, ok := strings.Cut(entry, "=")
		if ok && k != "" && (req.KeepAll || kept(k) || slices.Contains(req.Keep, k)) {
			env[k] = v
		}
	}
	if !req.KeepAll || env["PATH"] == "" {
		env["PATH"] = joinPath(imagePath)
	}
	env["HOME"], env["SHELL"] = target.Home, loginShell(target)
	env["USER"], env["LOGNAME"] = target.Name, target.Name
	env["SUDO_USER"] = caller.Name
	env["SUDO_UID"] = strconv.FormatUint(uint64(caller.UID), 10)
	env["SUDO_GID"] = strconv.FormatUint(uint64(caller.GID), 10)
	if env["TERM"] == "" {
		env["TERM"] = "unknown"
	}
	for _, entry := range req.Set {
		k, v, _ := strings.Cut(entry, "=")
		env[k] = v
	}
	return env
}

func joinPath(image string) string {
	dirs := strings.Split(securePath, ":")
	for _, dir := range strings.Split(image, ":") {
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

func find(name, path, cwd string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range strings.Split(path, ":") {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, full := range candidates {
		if !filepath.IsAbs(full) {
			full = filepath.Join(cwd, full)
		}
		if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

func (p *plan) credential() *syscall.Credential {
	return &syscall.Credential{Uid: p.target.UID, Gid: p.target.GID, Groups: p.target.Groups}
}
