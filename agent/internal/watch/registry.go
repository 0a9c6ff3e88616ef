package watch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/filesystem"
	"tupper.dev/agent/internal/settings"
)

// maxQueued bounds the events kept for a client that does not fetch them; the
// oldest go first.
const maxQueued = 100_000

// Registry knows all watches of the sandbox.
type Registry struct {
	settings *settings.Settings
	log      func(string, ...any)
	running  sync.WaitGroup

	mu    sync.Mutex
	all   map[*watcher]struct{}
	named map[string]*queue
}

// queue collects the events of one client.
type queue struct {
	watcher *watcher
	entries bool
	ready   chan struct{}

	mu     sync.Mutex
	events []wireEvent
}

type wireEvent struct {
	Name  string            `json:"name"`
	Type  Operation         `json:"type"`
	Entry *filesystem.Entry `json:"entry,omitempty"`
}

// NewRegistry makes an empty registry; Close ends all its watches.
func NewRegistry(s *settings.Settings, log func(string, ...any)) *Registry {
	return &Registry{settings: s, log: log, all: map[*watcher]struct{}{}, named: map[string]*queue{}}
}

// Routes returns the handlers by path.
func (g *Registry) Routes() map[string]httpd.HandlerFunc {
	const p = "/filesystem.Filesystem/"
	return map[string]httpd.HandlerFunc{
		p + "WatchDir":         g.serveWatch,
		p + "CreateWatcher":    connect.Unary(g.create),
		p + "GetWatcherEvents": connect.Unary(g.events),
		p + "RemoveWatcher":    connect.Unary(g.remove),
	}
}

// Sync lets every watch catch up with what has happened so far.
func (g *Registry) Sync() {
	g.mu.Lock()
	list := make([]*watcher, 0, len(g.all))
	for w := range g.all {
		list = append(list, w)
	}
	g.mu.Unlock()
	for _, w := range list {
		w.sync()
	}
}

// Close ends all watches and waits for them.
func (g *Registry) Close() {
	g.mu.Lock()
	for w := range g.all {
		w.close()
	}
	g.mu.Unlock()
	g.running.Wait()
}

type watchRequest struct {
	Path          string `json:"path"`
	Recursive     bool   `json:"recursive"`
	IncludeEntry  bool   `json:"includeEntry"`
	IncludeEntry2 bool   `json:"include_entry"`
	Network       bool   `json:"allowNetworkMounts"`
	Network2      bool   `json:"allow_network_mounts"`
}

type watcherRequest struct {
	ID  string `json:"watcherId"`
	ID2 string `json:"watcher_id"`
}

// open starts a watch.
func (g *Registry) open(r *httpd.Request, req *watchRequest) (*queue, error) {
	account, err := g.settings.RequestUser(r)
	if err != nil {
		return nil, err
	}
	path, err := g.settings.Path(account, req.Path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, filesystem.Problem(err, path)
	}
	if !info.IsDir() {
		return nil, connect.Errorf(connect.InvalidArgument, "path is not a directory: '%s'", settings.Escape(path))
	}
	if !req.Network && !req.Network2 && onNetwork(path) {
		return nil, connect.Errorf(connect.InvalidArgument, "cannot watch a network file system: '%s'", settings.Escape(path))
	}
	q := &queue{entries: req.IncludeEntry || req.IncludeEntry2, ready: make(chan struct{}, 1)}
	w, err := newWatcher(path, req.Recursive, func(e Event) { g.enqueue(q, path, e) })
	if err != nil {
		return nil, filesystem.Problem(err, path)
	}
	q.watcher = w
	g.mu.Lock()
	g.all[w] = struct{}{}
	g.mu.Unlock()
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		w.run()
	}()
	return q, nil
}

func (g *Registry) enqueue(q *queue, root string, e Event) {
	event := wireEvent{Name: settings.Escape(e.Name), Type: e.Op}
	if q.entries && (e.Op == Create || e.Op == Write || e.Op == Chmod) {
		event.Entry, _ = filesystem.Describe(g.settings.Users, filepath.Join(root, e.Name))
	}
	q.mu.Lock()
	if len(q.events) >= maxQueued {
		q.events = append(q.events[:0], q.events[maxQueued/2:]...)
		g.log("watch.events_dropped path=%q", root)
	}
	q.events = append(q.events, event)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) take() []wireEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.events
	q.events = nil
	return list
}

func (g *Registry) drop(q *queue) {
	q.watcher.close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, q.watcher)
}

func (g *Registry) create(_ context.Context, r *httpd.Request, req *watchRequest) (any, error) {
	q, err := g.open(r, req)
	if err != nil {
		return nil, err
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	id := "w" + hex.EncodeToString(raw[:])
	g.mu.Lock()
	g.named[id] = q
	g.mu.Unlock()
	return map[string]string{"watcherId": id}, nil
}

func (g *Registry) find(req *watcherRequest, forget bool) (*queue, error) {
	id := req.ID + req.ID2
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.named[id]
	if q == nil {
		return nil, connect.Errorf(connect.NotFound, "watcher with id %s not found", id)
	}
	if forget {
		delete(g.named, id)
	}
	return q, nil
}

func (g *Registry) events(_ context.Context, _ *httpd.Request, req *watcherRequest) (any, error) {
	q, err := g.find(req, false)
	if err != nil {
		return nil, err
	}
	q.watcher.sync()
	return struct {
		Events []wireEvent `json:"events,omitempty"`
	}{q.take()}, nil
}

func (g *Registry) remove(_ context.Context, _ *httpd.Request, req *watcherRequest) (any, error) {
	q, err := g.find(req, true)
	if err != nil {
		return nil, err
	}
	g.drop(q)
	return nil, nil
}

// serveWatch streams events; start is sent once the watch is armed.
func (g *Registry) serveWatch(w httpd.ResponseWriter, r *httpd.Request) {
	stream := connect.NewStream(w)
	var req watchRequest
	err := connect.ReadOnly(r, &req)
	if err == nil {
		var q *queue
		if q, err = g.open(r, &req); err == nil {
			defer g.drop(q)
			ctx, cancel := connect.Deadline(r)
			defer cancel()
			err = pump(ctx, stream, q, connect.Keepalive(r))
		}
	}
	stream.End(err)
}

func pump(ctx context.Context, stream *connect.Stream, q *queue, every time.Duration) error {
	if err := send(stream, map[string]any{"start": struct{}{}}); err != nil {
		return err
	}
	keepalive := time.NewTimer(every)
	defer keepalive.Stop()
	for {
		select {
		case <-q.ready:
			for _, event := range q.take() {
				if err := stream.Send(map[string]any{"filesystem": event}); err != nil {
					return err
				}
			}
			if err := stream.Flush(); err != nil {
				return err
			}
		case <-keepalive.C:
			if err := send(stream, map[string]any{"keepalive": struct{}{}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		keepalive.Reset(every)
	}
}

func send(stream *connect.Stream, message any) error {
	if err := stream.Send(message); err != nil {
		return err
	}
	return stream.Flush()
}

// onNetwork recognises NFS, CIFS, SMB2 and FUSE, whose changes from elsewhere
// inotify does not see.
//
// Source: statfs(2), linux/magic.h.
func onNetwork(path string) bool {
	var st syscall.Statfs_t
	if syscall.Statfs(path, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case 0x6969, 0xff534d42, 0xfe534d42, 0x65735546, 0x517b:
		return true
	}
	return false
}
