package sudo

import (
	"strings"
	"testing"

	"tupper.dev/agent/internal/user"
)

func TestParse(t *testing.T) {
	req, what, err := parse(strings.Fields("-nEu bob A=1 B=2 ls -l C=3"))
	if err != nil || what != runCommand || req.User != "bob" || !req.KeepAll || len(req.Set) != 2 || strings.Join(req.Args, " ") != "ls -l C=3" {
		t.Errorf("%+v %v %v", req, what, err)
	}
	req, _, err = parse([]string{"-iu#1000", "--", "-x"})
	if err != nil || !req.Login || req.User != "1000" || req.Args[0] != "-x" {
		t.Errorf("%+v %v", req, err)
	}
	if _, what, err := parse([]string{"-v"}); err != nil || what != validate {
		t.Error(what, err)
	}
	if _, _, err := parse(nil); err == nil {
		t.Error("no command is no error")
	}
}

func TestEnvironmentIsReset(t *testing.T) {
	caller, target := &user.Account{Name: "u", UID: 1000, GID: 1000}, &user.Account{Name: "root", Home: "/root"}
	req := &Request{Env: []string{"SECRET=1", "LANG=C", "LC_ALL=C"}, Set: []string{"X=y"}}
	env := environment(caller, target, req, "/opt/venv/bin:/usr/bin")
	if env["SECRET"] != "" || env["LANG"] != "C" || env["X"] != "y" || env["SUDO_USER"] != "u" || env["HOME"] != "/root" {
		t.Error(env)
	}
	if env["PATH"] != securePath+":/opt/venv/bin" {
		t.Error(env["PATH"])
	}
}
