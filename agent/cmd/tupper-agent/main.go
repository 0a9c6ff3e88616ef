// Command tupper-agent runs inside every sandbox of tupper and answers for it:
// commands, files, watches, terminals, tunnels. Called as "sudo" it is the
// client of its own sudo broker.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"tupper.dev/agent/internal/boot"
	"tupper.dev/agent/internal/server"
	"tupper.dev/agent/internal/settings"
	"tupper.dev/agent/internal/sudo"
	"tupper.dev/agent/internal/supervise"
)

// settle is when the work of the start is over.
const settle = 2 * time.Second

const configVariable = "TUPPER_AGENT_CONFIG"

func main() {
	if filepath.Base(os.Args[0]) == "sudo" {
		os.Exit(sudo.Main(os.Args[1:]))
	}
	if os.Getpid() == 1 && os.Args[0] == "/init" {
		machine()
	}
	if len(os.Args) < 2 {
		fatal(errors.New("usage: tupper-agent serve [--config PATH] | relay --channel PATH --listen PATH | version"))
	}
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(os.Args[2:])
	case "relay":
		err = carry(os.Args[2:])
	case "tsc":
		err = printTSC()
	case "sudo":
		os.Exit(sudo.Main(os.Args[2:]))
	case "hostname": // run by the host with the privilege that the agent lacks
		if len(os.Args) != 3 {
			fatal(errors.New("usage: tupper-agent hostname NAME"))
		}
		err = syscall.Sethostname([]byte(os.Args[2]))
	case "boot-id": // likewise
		if len(os.Args) != 3 {
			fatal(errors.New("usage: tupper-agent boot-id UUID"))
		}
		err = boot.ShowBootID(os.Args[2])
	case "version":
		fmt.Println(server.Version)
	default:
		err = fmt.Errorf("unknown verb %q: want serve, relay, tsc or version", os.Args[1])
	}
	if err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintf(os.Stderr, "tupper-agent: %v\n", err)
	os.Exit(1)
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	path := flags.String("config", "", "JSON file with the configuration; default is $"+configVariable)
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := configuration(*path)
	if err != nil {
		return err
	}
	_, err = answer(config, nil, func(*server.Server) {})
	if err != nil {
		return err
	}
	leave(config)
	return nil
}

// base is what an agent needs whosoever it is.
type base struct {
	ctx    context.Context // ends when we are asked to end
	stop   func()
	shield *supervise.Shield
	reaper *supervise.Reaper
}

func prepare() *base {
	// Each goroutine that another CPU picks up costs wake-ups, and under gVisor's
	// ptrace platform these are a tenth of a short command's time.
	runtime.GOMAXPROCS(max(1, min(2, runtime.NumCPU()/2)))
	sealDescriptors()
	debug.SetGCPercent(50)
	b := &base{}
	b.ctx, b.stop = signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	b.shield = supervise.NewShield()
	b.reaper = supervise.NewReaper(context.Background())
	return b
}

// answer serves until the end of the sandbox, and says why it came. It shows
// the server before that begins. Without a base (nil) it makes one.
func answer(config *settings.Config, b *base, show func(*server.Server)) (string, error) {
	syscall.Umask(0o022)
	// First of all, so that the host takes the socket while the rest is made.
	opened, err := server.Open(config)
	if err != nil {
		return "", err
	}
	if b == nil {
		b = prepare()
	}
	defer b.stop()
	// The start is what needs most; an idle sandbox gives that back, once.
	defer time.AfterFunc(settle, debug.FreeOSMemory).Stop()
	ring := &server.Ring{}
	if config.Hostname != "" {
		if err := server.SetHostname(config.Hostname); err != nil {
			ring.Printf("hostname.failed error=%q", err)
		}
	}
	if config.Limits.Pids > 0 && !supervise.LimitProcesses(config.Limits.Pids) {
		ring.Printf("limits.pids_unenforced hint=%q", "give the agent CAP_SYS_RESOURCE; its children do not get it")
	}
	s := server.New(config, b.reaper, b.shield, ring)
	show(s)
	releases := make(chan os.Signal, 1)
	signal.Notify(releases, syscall.SIGUSR1)
	go func() { // ends with the process
		for range releases {
			s.Release()
		}
	}()
	return s.Run(b.ctx, opened), nil
}

// sealDescriptors keeps whatever the agent was started with from its children.
func sealDescriptors() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// configuration reads the JSON from a file or from the environment, and takes
// it out of the latter, so that neither children nor /proc show the token.
func configuration(path string) (*settings.Config, error) {
	raw := []byte(os.Getenv(configVariable))
	wipe(configVariable)
	if path != "" {
		var err error
		if raw, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("no configuration: give --config or $%s", configVariable)
	}
	config := new(settings.Config)
	if err := json.Unmarshal(raw, config); err != nil {
		return nil, fmt.Errorf("decode the configuration: %w", err)
	}
	return config, nil
}

// leave ends the machine if that is asked for and ours to do: only PID 1 may.
func leave(config *settings.Config) {
	if os.Getpid() != 1 {
		return
	}
	switch config.OnExit {
	case "poweroff":
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	case "reboot":
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
	}
}
