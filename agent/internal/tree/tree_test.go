package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type entry struct {
	kind byte
	name string
	link string
	text string
}

func archive(t testing.TB, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		head := &tar.Header{Typeflag: e.kind, Name: e.name, Linkname: e.link, Size: int64(len(e.text)), Mode: 0o644}
		if err := w.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, e.text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// place is a target directory beside a victim that nothing may touch.
func place(t testing.TB) (dir string, unpack func([]byte) error) {
	base := t.TempDir()
	dir = filepath.Join(base, "target")
	if err := os.MkdirAll(filepath.Join(base, "victim"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "victim", "file"), []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, func(data []byte) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		u := &unpacker{root: root, buf: make([]byte, bufferSize), uid: -1, gid: -1}
		return u.all(tar.NewReader(bytes.NewReader(data)))
	}
}

func untouched(t testing.TB, dir string) {
	t.Helper()
	victim := filepath.Join(filepath.Dir(dir), "victim")
	text, err := os.ReadFile(filepath.Join(victim, "file"))
	if err != nil || string(text) != "safe" {
		t.Errorf("the victim: %q %v", text, err)
	}
	info, err := os.Stat(filepath.Join(victim, "file"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the victim's mode: %v %v", info.Mode(), err)
	}
	list, _ := os.ReadDir(victim)
	above, _ := os.ReadDir(filepath.Dir(dir))
	if len(list) != 1 || len(above) != 2 {
		t.Errorf("outside the target: %v %v", list, above)
	}
}

func TestNothingLeavesTheTarget(t *testing.T) { // TB047
	for name, entries := range map[string][]entry{
		"dots":               {{tar.TypeReg, "../victim/file", "", "bad"}},
		"dots inside":        {{tar.TypeReg, "a/../../victim/file", "", "bad"}},
		"absolute":           {{tar.TypeReg, "/etc/victim", "", "bad"}},
		"link, then through": {{tar.TypeSymlink, "l", "../victim", ""}, {tar.TypeReg, "l/file", "", "bad"}},
		"new file through":   {{tar.TypeSymlink, "l", "../victim", ""}, {tar.TypeReg, "l/new", "", "bad"}},
		"dir through":        {{tar.TypeSymlink, "l", "../victim", ""}, {tar.TypeDir, "l/new", "", ""}},
		"mode through":       {{tar.TypeSymlink, "l", "../victim/file", ""}, {tar.TypeDir, "l", "", ""}},
		"absolute link":      {{tar.TypeSymlink, "l", "/", ""}, {tar.TypeReg, "l/tmp/x", "", "bad"}},
		"two links":          {{tar.TypeSymlink, "a", ".", ""}, {tar.TypeSymlink, "a/b", "..", ""}, {tar.TypeReg, "b/victim/file", "", "bad"}},
		"hard link to":       {{tar.TypeLink, "h", "../victim/file", ""}, {tar.TypeReg, "h", "", "bad"}},
		"hard link through":  {{tar.TypeSymlink, "l", "../victim", ""}, {tar.TypeLink, "h", "l/file", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, unpack := place(t)
			if err := unpack(archive(t, entries...)); err == nil && name != "mode through" {
				t.Error("it is accepted")
			}
			untouched(t, dir)
		})
	}
}

func TestCleanNames(t *testing.T) {
	for name, want := range map[string]string{"a//b/": "a/b", "./x": "x", "a/../b": "b", ".": ".", "...": "..."} {
		if got, err := clean(name); err != nil || got != want {
			t.Errorf("%q: %q %v", name, got, err)
		}
	}
	for _, name := range []string{"..", "../a", "a/../..", "/", "/a", "a\x00b"} {
		if got, err := clean(name); err == nil {
			t.Errorf("%q is accepted as %q", name, got)
		}
	}
}

func TestALinkInTheWayIsReplacedNotFollowed(t *testing.T) {
	dir, unpack := place(t)
	if err := unpack(archive(t, entry{tar.TypeSymlink, "f", "../victim/file", ""}, entry{tar.TypeReg, "f", "", "new"})); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(text) != "new" {
		t.Errorf("%q %v", text, err)
	}
	untouched(t, dir)
}

func TestDevicesAndPipesAreLeftOut(t *testing.T) {
	dir, unpack := place(t)
	err := unpack(archive(t, entry{tar.TypeChar, "c", "", ""}, entry{tar.TypeBlock, "b", "", ""}, entry{tar.TypeFifo, "p", "", ""},
		entry{tar.TypeReg, "f", "", "x"}))
	list, _ := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

func TestACutArchiveLeavesNoPartOfAFile(t *testing.T) {
	dir, unpack := place(t)
	data := archive(t, entry{tar.TypeReg, "whole", "", "x"}, entry{tar.TypeReg, "cut", "", strings.Repeat("y", 10000)})
	var bad *badArchive
	if err := unpack(data[:2*512+512+3000]); !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "whole")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cut")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, entry{tar.TypeReg, "a/b", "", "x"}, entry{tar.TypeSymlink, "l", "..", ""}, entry{tar.TypeDir, "l/d", "", ""}))
	f.Add(archive(f, entry{tar.TypeLink, "h", "../victim/file", ""}, entry{tar.TypeReg, "../x", "", "y"}))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir, unpack := place(t)
		_ = unpack(data)
		untouched(t, dir)
	})
}
