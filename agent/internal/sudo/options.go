// Package sudo stands in for sudo where set-uid programs do not work (gVisor
// always has no_new_privs). The binary called as "sudo" is the client: it hands
// its arguments, environment, directory and standard streams to the agent over
// a socket inside the guest. The agent's broker checks who is at the other end
// (by credentials the kernel vouches for) and runs the command as the target user. Called by root, the
// client changes user and executes by itself.
//
// Limits, all from the child not being the caller's child: it has the
// caller's terminal as its streams but not as its controlling terminal (so
// /dev/tty and job control are missing; Ctrl-C and friends are forwarded as
// signals), and the caller's resource limits do not apply.
package sudo

import (
	"errors"
	"fmt"
	"strings"

	"tupper.dev/agent/internal/supervise"
)

// SocketPath is where the broker listens, in the guest's own file system.
const SocketPath = "/run/.tupper/sudo.sock"

// action is what sudo is asked to do.
type action int

const (
	runCommand action = iota
	validate          // -v, -k, -K: nothing to do, there are no passwords
	list              // -l
	version           // -V
	help              // -h
)

// Request is what the client sends.
type Request struct {
	User       string   `json:"user"`
	Group      string   `json:"group,omitempty"`
	Args       []string `json:"args"`
	Env        []string `json:"env"`     // of the caller
	Set        []string `json:"set"`     // NAME=value on the command line
	Keep       []string `json:"keep"`    // names of --preserve-env=
	KeepAll    bool     `json:"keepAll"` // -E
	Login      bool     `json:"login"`
	Shell      bool     `json:"shell"`
	Background bool     `json:"background"`
	Cwd        string   `json:"cwd"`
	Umask      *int     `json:"umask,omitempty"` // of the caller
}

// umask is the one of the command: the caller's, with the bits of 022 added as
// sudo does.
func (r *Request) umask() int {
	if r.Umask == nil {
		return supervise.UsualUmask
	}
	return (*r.Umask | 0o022) & 0o777
}

// parse reads the command line after "sudo".
func parse(args []string) (*Request, action, error) {
	req, what := &Request{User: "root"}, runCommand
	p := &parser{rest: args, req: req, what: &what}
	for len(p.rest) > 0 && strings.HasPrefix(p.rest[0], "-") && p.rest[0] != "-" {
		arg := p.rest[0]
		p.rest = p.rest[1:]
		if arg == "--" {
			break
		}
		var err error
		if strings.HasPrefix(arg, "--") {
			err = p.long(arg[2:])
		} else {
			err = p.short(arg[1:])
		}
		if err != nil {
			return nil, what, err
		}
	}
	for len(p.rest) > 0 && assignment(p.rest[0]) {
		req.Set = append(req.Set, p.rest[0])
		p.rest = p.rest[1:]
	}
	req.Args = p.rest
	if what == runCommand && len(req.Args) == 0 && !req.Login && !req.Shell {
		return nil, what, fmt.Errorf("no command given")
	}
	return req, what, nil
}

func assignment(arg string) bool {
	name, _, ok := strings.Cut(arg, "=")
	return ok && name != "" && !strings.ContainsAny(name, "/ \t")
}

type parser struct {
	rest []string
	req  *Request
	what *action
}

// value takes an option's argument, joined or separate.
func (p *parser) value(joined string, has bool) (string, error) {
	if has {
		return joined, nil
	}
	if len(p.rest) == 0 {
		return "", fmt.Errorf("an option lacks its argument")
	}
	v := p.rest[0]
	p.rest = p.rest[1:]
	return v, nil
}

func (p *parser) long(arg string) error {
	name, joined, has := strings.Cut(arg, "=")
	short := map[string]string{
		"user": "u", "group": "g", "login": "i", "shell": "s", "set-home": "H", "non-interactive": "n",
		"stdin": "S", "background": "b", "list": "l", "validate": "v", "reset-timestamp": "k",
		"remove-timestamp": "K", "version": "V", "help": "h", "prompt": "p", "chdir": "D", "close-from": "C",
		"edit": "e", "host": "h", "other-user": "U", "askpass": "A", "bell": "B", "preserve-groups": "P",
	}[name]
	switch {
	case name == "preserve-env" && has:
		p.req.Keep = append(p.req.Keep, strings.Split(joined, ",")...)
		return nil
	case name == "preserve-env":
		p.req.KeepAll = true
		return nil
	case short == "":
		return fmt.Errorf("unrecognized option '--%s'", name)
	}
	return p.option(short[0], joined, has)
}

// short reads a cluster such as "nEu" where a letter that takes an argument
// takes the rest.
func (p *parser) short(cluster string) error {
	for i := 0; i < len(cluster); i++ {
		rest := cluster[i+1:]
		takes := strings.IndexByte("ugpDCUTRrt", cluster[i]) >= 0
		if err := p.option(cluster[i], rest, takes && rest != ""); err != nil {
			return err
		}
		if takes {
			return nil
		}
	}
	return nil
}

func (p *parser) option(letter byte, joined string, has bool) (err error) {
	switch letter {
	case 'u':
		p.req.User, err = p.value(joined, has)
		p.req.User = strings.TrimPrefix(p.req.User, "#")
	case 'g':
		p.req.Group, err = p.value(joined, has)
		p.req.Group = strings.TrimPrefix(p.req.Group, "#")
	case 'D':
		p.req.Cwd, err = p.value(joined, has)
	case 'p', 'C', 'U', 'T', 'R', 'r', 't':
		_, err = p.value(joined, has)
	case 'E':
		p.req.KeepAll = true
	case 'i':
		p.req.Login = true
	case 's':
		p.req.Shell = true
	case 'b':
		p.req.Background = true
	case 'H', 'n', 'S', 'A', 'B', 'P':
	case 'k', 'K', 'v':
		if *p.what == runCommand && (letter != 'k' || len(p.rest) == 0) {
			*p.what = validate
		}
	case 'l':
		*p.what = list
	case 'V':
		*p.what = version
	case 'e':
		return errors.New("editing files (-e, sudoedit) is not supported in this sandbox: run an editor with sudo instead")
	case 'h':
		*p.what = help
	default:
		return fmt.Errorf("invalid option -- '%c'", letter)
	}
	return err
}
