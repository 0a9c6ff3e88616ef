package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// log collects the events of a watcher.
type log struct {
	mu   sync.Mutex
	list []string
}

func (l *log) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, strings.ToLower(strings.TrimPrefix(string(e.Op), "EVENT_TYPE_"))+" "+e.Name)
}

// wait returns when all of want have been seen.
func (l *log) wait(t *testing.T, want ...string) {
	t.Helper()
	for stop := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		all := "\n" + strings.Join(l.list, "\n") + "\n"
		l.mu.Unlock()
		missing := ""
		for _, line := range want {
			if !strings.Contains(all, "\n"+line+"\n") {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(stop) {
			t.Fatalf("no %q in %q", missing, all)
		}
	}
}

func watching(t *testing.T, recursive bool) (string, *log) {
	dir, l := t.TempDir(), &log{}
	w, err := newWatcher(dir, recursive, l.add)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.run()
	}()
	t.Cleanup(func() {
		w.close()
		<-over
	})
	return dir, l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEventsOfAFile(t *testing.T) {
	dir, l := watching(t, false)
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("x"), 0o644))
	must(t, os.Chmod(path, 0o600))
	must(t, os.Rename(path, filepath.Join(dir, "g")))
	must(t, os.Remove(filepath.Join(dir, "g")))
	l.wait(t, "create f", "write f", "chmod f", "rename f", "create g", "remove g")
}

func TestNewDirectoriesAreWatchedToo(t *testing.T) {
	dir, l := watching(t, true)
	for i := range 20 { // made faster than watches can be added
		deep := filepath.Join(dir, fmt.Sprint("d", i), "e")
		must(t, os.MkdirAll(deep, 0o755))
		must(t, os.WriteFile(filepath.Join(deep, "f"), []byte("x"), 0o644))
	}
	for i := range 20 {
		l.wait(t, fmt.Sprintf("create d%d", i), fmt.Sprintf("create d%d/e", i), fmt.Sprintf("create d%d/e/f", i))
	}
	must(t, os.RemoveAll(filepath.Join(dir, "d3")))
	l.wait(t, "remove d3/e/f", "remove d3/e", "remove d3")
}

func TestOnlyDirectoriesCanBeWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, nil, 0o644))
	for _, target := range []string{path, path + "/missing", "/nonexistent"} {
		if _, err := newWatcher(target, false, func(Event) {}); err == nil {
			t.Errorf("%s can be watched", target)
		}
	}
}
