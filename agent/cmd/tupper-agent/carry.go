package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"tupper.dev/agent/internal/mux"
	"tupper.dev/agent/internal/relay"
)

// haltedExit is the exit status of a relay whose machine has halted but will
// not end by itself.
const haltedExit = 3

// carry is the relay of one virtual machine, on the host.
func carry(args []string) error {
	wakes := make(chan os.Signal, 1)
	signal.Notify(wakes, syscall.SIGUSR1) // first of all: its default is to end us
	r := &relay.Relay{Wakes: wakes}
	flags := flag.NewFlagSet("relay", flag.ContinueOnError)
	flags.StringVar(&r.Channel, "channel", "", "unix socket of the machine's port")
	flags.StringVar(&r.Address, "listen", "", "unix socket to make for clients, in a directory that is private")
	config := flags.String("settings", "", "JSON file for a machine that boots")
	news := flags.String("wake", "", "JSON file for a machine that was restored and is held")
	console := flags.Int("console", -1, "descriptor of the machine's serial line")
	record := flags.String("console-log", "", "file for the end of what comes over it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.Channel == "" || r.Address == "" || (*console >= 0) != (*record != "") {
		return errors.New("relay wants --channel and --listen, and --console with --console-log")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	syscall.Umask(0o177) // all that we make is for nobody else
	log.SetFlags(0)
	debug.SetGCPercent(50)
	var err error
	if r.Settings, err = load(*config, mux.MaxSettings); err != nil {
		return err
	}
	if r.News, err = load(*news, mux.MaxNews); err != nil {
		return err
	}
	if *console >= 0 {
		r.Console = &relay.Console{Line: os.NewFile(uintptr(*console), "console"), Path: *record}
	}
	if err := r.Run(ctx); !errors.Is(err, relay.ErrHalted) {
		return err
	}
	os.Exit(haltedExit)
	return nil
}

// load reads a file that is named; nil for none.
func load(path string, most int) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s has %d bytes: want %d or fewer", path, len(text), most)
	}
	return text, err
}
