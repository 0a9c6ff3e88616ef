package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tupper.dev/agent/internal/settings"
)

const (
	certOne = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
	certTwo = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----"
)

// guest is a root directory with an etc in it.
func guest(t *testing.T) (*etc, func(string) string) {
	root := t.TempDir()
	e := &etc{root: root, log: func(format string, args ...any) { t.Errorf(format, args...) }}
	return e, func(path string) string {
		info, err := os.Lstat(root + path)
		if err != nil {
			return "missing"
		}
		data, err := os.ReadFile(root + path)
		if err != nil {
			return err.Error()
		}
		return info.Mode().String() + " " + string(data)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTrustOnAnEmptyImage(t *testing.T) {
	e, read := guest(t)
	e.trust("# host\n" + certOne + "\nnoise\n" + certTwo + "\n" + certOne)
	if got := read(debianStore); got != "-rw-r--r-- "+certOne+"\n"+certTwo+"\n" {
		t.Errorf("%q", got)
	}
	pieces, _ := filepath.Glob(e.root + "/usr/local/share/ca-certificates/tupper-*.crt")
	if len(pieces) != 2 {
		t.Error(pieces)
	}
	if got := read("/etc/pki/tls/certs/ca-bundle.crt"); got != "missing" {
		t.Error("a store of another distribution was made")
	}
}

func TestTrustAppendsOnceToEveryStore(t *testing.T) {
	e, read := guest(t)
	put(t, e.root+debianStore, "old without newline")
	put(t, e.root+"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "fedora\n"+certOne+"\n")
	if err := os.MkdirAll(e.root+"/etc/pki/tls/certs", 0o755); err != nil {
		t.Fatal(err)
	}
	link := e.root + "/etc/pki/tls/certs/ca-bundle.crt"
	if err := os.Symlink("../../ca-trust/extracted/pem/tls-ca-bundle.pem", link); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e.trust(certOne + "\n" + certTwo)
	}
	if got := read(debianStore); got != "-rw-r--r-- old without newline\n"+certOne+"\n"+certTwo+"\n" {
		t.Errorf("%q", got)
	}
	if got := read("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"); got != "-rw-r--r-- fedora\n"+certOne+"\n"+certTwo+"\n" {
		t.Errorf("%q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
}

func TestTrustReplacesALinkToNothing(t *testing.T) {
	e, read := guest(t)
	if err := os.MkdirAll(e.root+"/etc/ssl/certs", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/at/all", e.root+debianStore); err != nil {
		t.Fatal(err)
	}
	e.trust(certOne)
	if got := read(debianStore); got != "-rw-r--r-- "+certOne+"\n" {
		t.Errorf("%q", got)
	}
}

func TestTrustWithoutCertificatesDoesNothing(t *testing.T) {
	e, read := guest(t)
	for _, text := range []string{"", "hello", "-----BEGIN CERTIFICATE-----\nAAAA", "-----END CERTIFICATE-----"} {
		e.trust(text)
	}
	if got := read(debianStore); got != "missing" {
		t.Error(got)
	}
}

func TestFilesReplaceWhatIsThere(t *testing.T) { // TB035
	e, read := guest(t)
	put(t, e.root+"/etc/hosts", "old")
	put(t, e.root+"/etc/victim", "untouched")
	for name, target := range map[string]string{
		"resolv.conf": "../run/systemd/resolve/stub-resolv.conf", "circle": "circle", "linked": "victim",
	} {
		if err := os.Symlink(target, e.root+"/etc/"+name); err != nil {
			t.Fatal(err)
		}
	}
	e.write(map[string]string{
		"/etc/hosts": "h\n", "/etc/resolv.conf": "r\n", "/etc/circle": "c\n", "/etc/linked": "l\n", "/new/dir/f": "n\n",
	})
	for path, want := range map[string]string{
		"/etc/hosts": "h\n", "/etc/resolv.conf": "r\n", "/etc/circle": "c\n", "/etc/linked": "l\n", "/new/dir/f": "n\n",
		"/etc/victim": "untouched",
	} {
		if got := read(path); got != "-rw-r--r-- "+want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func TestFilesThatCannotBeWrittenAreLogged(t *testing.T) {
	e, _ := guest(t)
	var lines []string
	e.log = func(format string, _ ...any) { lines = append(lines, format) }
	put(t, e.root+"/etc/hosts/dir", "x")
	e.write(map[string]string{"relative": "x", "/etc/hosts": "x", "/etc/hosts/dir/below": "x"})
	if len(lines) != 3 {
		t.Error(lines)
	}
	left, _ := filepath.Glob(e.root + "/etc/.tupper-*")
	if len(left) > 0 {
		t.Error(left)
	}
}

// TestCommandsWaitForTheGuestsFiles: the first command of a fresh agent sees
// the certificates and files of its configuration.
func TestCommandsWaitForTheGuestsFiles(t *testing.T) {
	place := filepath.Join(t.TempDir(), "given")
	a := begin(t, func(c *settings.Config) { c.Files = map[string]string{place: strings.Repeat("x", 1<<20)} })
	if got := a.run("wc -c < " + place); got.stdout != "1048576\n" {
		t.Errorf("%+v", got)
	}
}
