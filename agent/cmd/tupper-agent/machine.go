package main

import (
	"sync/atomic"

	"tupper.dev/agent/internal/boot"
	"tupper.dev/agent/internal/server"
)

// machine is the whole life of a virtual machine, from its kernel's start of
// /init to the reset that ends it.
func machine() {
	var serving atomic.Pointer[server.Server]
	var ready *base
	system, err := boot.Start(func() { ready = prepare() }, func(news *boot.News) {
		s := serving.Load()
		switch {
		case s == nil: // not yet there, so not held
		case news != nil && news.Cold:
			go s.Restart() // may take long; the port is read meanwhile
		default:
			s.Release()
		}
	})
	if err != nil {
		system.Last("failed %v", err)
	}
	config := system.Config
	config.Channel = system.Channel
	config.Init = true
	why, err := answer(config, ready, serving.Store)
	if err != nil {
		system.Last("failed %v", err)
	}
	system.Last("end %s", why)
}
