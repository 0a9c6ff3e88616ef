package sudo

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"tupper.dev/agent/internal/user"
)

// answer is the broker's only message.
type answer struct {
	Exit   int    `json:"exit"`
	Signal int    `json:"signal"`
	Error  string `json:"error"`
}

// Main is the client. It returns the exit code.
func Main(args []string) int {
	req, what, err := parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sudo: %v\nusage: sudo [-EHbiknSsVv] [-u user] [-g group] [VAR=value] [command [arg ...]]\n", err)
		return 1
	}
	switch what {
	case validate:
		return 0
	case version:
		fmt.Println("Sudo version 1.9.13 (tupper-agent)")
		return 0
	case help:
		fmt.Println("usage: sudo [-EHbiknSsVv] [-u user] [-g group] [VAR=value] [command [arg ...]]")
		return 0
	case list:
		fmt.Printf("User %s may run the following commands on this sandbox:\n    (ALL : ALL) NOPASSWD: ALL\n",
			user.Open("").Name(uint32(os.Getuid())))
		return 0
	}
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	req.Env, req.Umask = os.Environ(), &mask
	if req.Cwd == "" {
		req.Cwd, _ = os.Getwd()
	}
	if os.Geteuid() == 0 {
		err = become(req)
	} else {
		var code int
		if code, err = ask(req); err == nil {
			return code
		}
	}
	fmt.Fprintf(os.Stderr, "sudo: %v\n", err)
	return 1
}

// become changes user and executes; root needs no broker. It returns only on
// failure.
func become(req *Request) error {
	users := user.Open("")
	caller, err := users.Lookup(strconv.Itoa(os.Getuid()))
	if err != nil {
		return err
	}
	p, err := draw(users, caller, req, os.Getenv("PATH"))
	if err != nil {
		return err
	}
	if err := os.Chdir(p.cwd); err != nil {
		return err
	}
	syscall.Umask(req.umask())
	groups := make([]int, len(p.target.Groups))
	for i, g := range p.target.Groups {
		groups[i] = int(g)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setgid(int(p.target.GID)); err != nil {
		return fmt.Errorf("setgid: %w", err)
	}
	if err := syscall.Setuid(int(p.target.UID)); err != nil {
		return fmt.Errorf("setuid: %w", err)
	}
	return fmt.Errorf("%s: %w", p.path, syscall.Exec(p.path, p.argv, p.env))
}

// ask lets the broker run the command and passes signals on until it is over.
func ask(req *Request) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: SocketPath, Net: "unix"})
	if err != nil {
		return 0, fmt.Errorf("cannot reach the agent of this sandbox: %w", err)
	}
	defer conn.Close()
	body, err := json.Marshal(req)
	if err != nil {
		return 0, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	rights := append(syscall.UnixRights(0, 1, 2), syscall.UnixCredentials(&syscall.Ucred{
		Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()),
	})...)
	if _, _, err := conn.WriteMsgUnix(frame, rights, nil); err != nil {
		return 0, fmt.Errorf("send the request: %w", err)
	}
	if _, err := conn.Write(body); err != nil {
		return 0, fmt.Errorf("send the request: %w", err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGUSR1, syscall.SIGUSR2)
	go forward(conn, signals) // ends with the process
	raw, err := io.ReadAll(conn)
	if err != nil {
		return 0, fmt.Errorf("wait for the command: %w", err)
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return 0, fmt.Errorf("the agent went away")
	}
	if a.Error != "" {
		return 0, fmt.Errorf("%s", a.Error)
	}
	if a.Signal > 0 {
		return 128 + a.Signal, nil
	}
	return a.Exit, nil
}

func forward(conn net.Conn, signals <-chan os.Signal) {
	for s := range signals {
		number := s.(syscall.Signal)
		_, _ = conn.Write([]byte{byte(number)})
		if number == syscall.SIGTSTP {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	}
}
