// Package boot makes a running system of a bare kernel: it is what the agent
// does first as /init of a virtual machine.
//
// The initramfs holds the agent and, for kernels that need them, modules. All
// else comes over the host's port: the settings, with the address of the network
// and the token. The root filesystem is a read-only disk that many machines share,
// below an overlay whose upper layer is this machine's own disk.
//
// Devices are found by the names that the host gave them, never by their order.
// Whatever fails ends the machine; its last words are on the console.
package boot

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"tupper.dev/agent/internal/entropy"
	"tupper.dev/agent/internal/mux"
	"tupper.dev/agent/internal/settings"
)

// patience is how long a device may take.
const patience = 30 * time.Second

// waiting is the last that a machine says before it depends on whose it is: the
// host may save it now, with its disk, for all that are to come.
const waiting = "waiting"

// Settings are what the host sends.
type Settings struct {
	Agent   settings.Config `json:"agent"`
	Network *Network        `json:"network"`
	Mounts  []Mount         `json:"mounts"`
}

// Mount is a directory of the host, which is seen under its name in the one
// that the host shows.
type Mount struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
}

// System is a machine that has booted.
type System struct {
	Config  *settings.Config
	Channel *mux.Guest
	Console *os.File
}

// Start does it all. It returns when the agent can serve. prepare is called when
// all is there that is the same in every machine; wake when the host says that a
// held agent may go on.
func Start(prepare func(), wake func(*News)) (*System, error) {
	system := &System{}
	if err := mountKernel(""); err != nil {
		return system, err
	}
	console, err := os.OpenFile("/dev/console", os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return system, err
	}
	system.Console = console
	if probed() {
		system.Last("probe %s", release())
	}
	events, err := listenEvents()
	if err != nil {
		return system, err
	}
	defer events.close()
	if err := loadModules("/modules"); err != nil {
		return system, err
	}
	port, err := openPort(events, "tupper.agent")
	if err != nil {
		return system, err
	}
	system.Channel = mux.NewGuest(port, system.goOn(wake))
	told := system.Channel.Settings()
	failed := make(chan error, 1)
	go func() { failed <- system.Channel.Run() }() // ends with the machine
	if err := makeRoot(events); err != nil {
		return system, err
	}
	prepare()
	practise()
	system.say(waiting)
	wanted, err := await(told, failed)
	if err != nil {
		return system, err
	}
	system.Config = &wanted.Agent
	return system, wanted.furnish(events)
}

// makeRoot makes all that is the same in every machine of an image.
func makeRoot(events *events) error {
	if err := mountRoot(events); err != nil {
		return err
	}
	rehearsed := rehearse(lower)
	if err := layRoot(events); err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return err
	}
	if err := raiseLoopback(); err != nil {
		return err
	}
	if err := raiseDevice(); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: openFiles, Max: openFiles}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("set the limit of open files: %w", err)
	}
	glanceAtFiles()
	rehearsed()
	return nil
}

func await(told <-chan mux.Told, failed <-chan error) (*Settings, error) {
	select {
	case got := <-told:
		wanted := new(Settings)
		if err := json.Unmarshal(got.Text, wanted); err != nil {
			return nil, fmt.Errorf("decode the settings: %w", err)
		}
		return wanted, freshen(got)
	case err := <-failed:
		return nil, err
	}
}

// freshen takes over the host's time and random numbers.
func freshen(got mux.Told) error {
	setClock(got.Time)
	return entropy.Add(got.Seed)
}

// furnish makes the machine the one that the settings describe.
func (wanted *Settings) furnish(events *events) error {
	if err := mountHost(wanted.Mounts); err != nil {
		return err
	}
	if wanted.Network == nil {
		return nil
	}
	return wanted.Network.configure(events)
}

// openFiles is the same as in other backends.
const openFiles = 65536

func (s *System) say(format string, args ...any) {
	if s.Console != nil {
		_, _ = fmt.Fprintf(s.Console, "\ntupper: "+format+"\n", args...)
	}
}

// Last writes the reason of the end where the host finds it, and ends the
// machine.
func (s *System) Last(format string, args ...any) {
	s.say(format, args...)
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
}
