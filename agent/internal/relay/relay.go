// Package relay is the host's end of a virtual machine's port: it listens on a
// unix socket and carries each connection as a stream to the agent inside.
//
// One relay serves one machine, and ends with it. It holds nothing that matters:
// killed and started again, connections have broken and that is all.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"tupper.dev/agent/internal/mux"
)

const (
	// patience is how long the machine may take to make its end of the channel.
	patience = 10 * time.Second
	// pause is how long a guest that broke the rules waits for the next greeting.
	pause = 100 * time.Millisecond
)

// ErrHalted is the end of a machine that has halted, and would stay so.
var ErrHalted = errors.New("the machine has halted")

// Relay is what one machine needs.
type Relay struct {
	Channel  string // the unix socket of the machine's port
	Address  string // the unix socket that we make for clients
	Settings []byte // for a guest that boots; nil for none
	News     []byte // for a guest that was restored and is held; nil for none
	Wakes    <-chan os.Signal
	Console  *Console // nil if somebody else listens

	mu       sync.Mutex
	host     *mux.Host // nil while there is no session
	ready    sync.Cond
	listener net.Listener // of this moment
	over     bool
	owed     bool // a wake that has not been passed on
	clients  sync.WaitGroup
}

// Run serves until the machine is gone (nil), has halted, or ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	r.ready.L = &r.mu
	r.owed = r.News != nil
	if err := r.listen(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var helpers sync.WaitGroup
	helpers.Add(1)
	go func() {
		defer helpers.Done()
		r.passWakes(ctx)
	}()
	if r.Console != nil {
		go r.watch(cancel) // ends with the machine, or with us
	}
	err := r.connect(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, ErrHalted) {
		err = cause
	}
	cancel(nil)
	r.set(nil, true)
	helpers.Wait()
	r.clients.Wait()
	_ = os.Remove(r.Address)
	return err
}

func (r *Relay) watch(cancel context.CancelCauseFunc) {
	halted, err := r.Console.run()
	switch {
	case err != nil:
		log.Printf("console.failed error=%q", err)
		_, _ = io.Copy(io.Discard, r.Console.Line) // or the guest would wait
	case halted:
		cancel(ErrHalted)
	}
}

// listen makes the socket for clients. One that is there already gives way:
// whoever moved it elsewhere wants another one.
func (r *Relay) listen() error {
	if err := os.Remove(r.Address); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("listen on %s: %w", r.Address, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.Address, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", r.Address, err)
	}
	listener.SetUnlinkOnClose(false) // its name may be another's by then
	r.mu.Lock()
	old := r.listener
	r.listener = listener
	r.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	r.clients.Add(1)
	go func() {
		defer r.clients.Done()
		r.accept(listener)
	}()
	return nil
}

// connect keeps up a session as long as the machine is there.
func (r *Relay) connect(ctx context.Context) error {
	known := false
	for ctx.Err() == nil {
		channel, err := r.dial(ctx, known)
		switch {
		case err != nil && (ctx.Err() != nil || known && gone(err)):
			return nil
		case err != nil:
			return fmt.Errorf("the machine's channel: %w", err)
		}
		known = true
		err = r.session(ctx, channel)
		if ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			log.Printf("session.over error=%q", err)
			sleep(ctx, pause)
		}
	}
	return nil
}

// dial connects to the channel. Before the first time it may not be there yet.
func (r *Relay) dial(ctx context.Context, known bool) (net.Conn, error) {
	begun := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		conn, err := net.Dial("unix", r.Channel)
		if err == nil || known || !gone(err) || time.Since(begun) > patience || ctx.Err() != nil {
			return conn, err
		}
		sleep(ctx, wait)
	}
}

func gone(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *Relay) session(ctx context.Context, channel net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = channel.Close() })
	defer stop()
	defer channel.Close()
	host, err := mux.Greet(channel, r.Settings)
	if err != nil {
		return err
	}
	r.set(host, false)
	defer r.set(nil, false)
	r.passWake(host)
	return host.Run()
}

func (r *Relay) set(host *mux.Host, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host = host
	r.over = r.over || over
	if r.over {
		_ = r.listener.Close()
	}
	r.ready.Broadcast()
}

// wait returns the session, as soon as there is one; nil when all is over.
func (r *Relay) wait() *mux.Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.host == nil && !r.over {
		r.ready.Wait()
	}
	if r.over {
		return nil
	}
	return r.host
}

// accept takes a client only when there is somewhere to go: the kernel keeps
// the others.
func (r *Relay) accept(listener *net.UnixListener) {
	for r.wait() != nil {
		client, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Printf("accept.failed error=%q", err)
			time.Sleep(pause) // out of descriptors: let some go
			continue
		}
		host := r.wait()
		if host == nil {
			_ = client.Close()
			return
		}
		stream, err := host.Open()
		if err != nil {
			_ = client.Close()
			continue
		}
		r.clients.Add(1)
		go func() {
			defer r.clients.Done()
			join(client, stream)
		}()
	}
}

// join copies both ways until both are done.
func join(client *net.UnixConn, stream *mux.Stream) {
	stream.WhenGone(func() { _ = client.CloseRead() })
	var both sync.WaitGroup
	both.Add(1)
	go func() {
		defer both.Done()
		if _, err := stream.ReadFrom(client); err != nil {
			_ = client.CloseRead() // its writes fail
		}
		_ = stream.CloseWrite()
	}()
	if _, err := stream.WriteTo(client); err != nil {
		_ = stream.Close() // the client reads no more, or the guest is gone
		_ = client.Close()
	}
	_ = client.CloseWrite()
	both.Wait()
	_ = stream.Close()
	_ = client.Close()
}

// passWakes makes a new socket for every wake, and passes it on.
func (r *Relay) passWakes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Wakes:
		}
		if err := r.listen(); err != nil {
			log.Printf("listen.failed error=%q", err)
		}
		r.mu.Lock()
		r.owed = true
		host := r.host
		r.mu.Unlock()
		if host != nil {
			r.passWake(host)
		}
	}
}

// passWake tells the guest what is owed to it. What cannot be told stays owed.
// The news are told once.
func (r *Relay) passWake(host *mux.Host) {
	r.mu.Lock()
	owed, news := r.owed, r.News
	r.owed, r.News = false, nil
	r.mu.Unlock()
	if owed && host.Wake(news) != nil {
		r.mu.Lock()
		r.owed, r.News = true, news
		r.mu.Unlock()
	}
}
