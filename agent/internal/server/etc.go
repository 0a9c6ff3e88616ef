package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// etc writes what the configuration wants in the guest's own files. It runs
// while the agent already listens; the first command waits for it.
type etc struct {
	root string // "" is the guest itself; tests have another
	log  func(format string, args ...any)
}

// debianStore is made if it is missing: most libraries look there first.
const debianStore = "/etc/ssl/certs/ca-certificates.crt"

// stores are the bundles of the usual distributions (Fedora's two, SUSE's,
// Alpine's and OpenSSL's own).
func stores() []string {
	return []string{
		debianStore, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	}
}

// anchors are where the tools that build these bundles anew take local
// certificates from; only the first is made if it is missing.
func anchors() []string {
	return []string{
		"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors", "/etc/pki/trust/anchors",
		"/usr/share/pki/trust/anchors",
	}
}

// write puts texts in their places, each as a regular file.
func (e *etc) write(files map[string]string) {
	for path, text := range files {
		if !filepath.IsAbs(path) {
			e.log("etc.failed path=%q error=%q", path, "not absolute")
			continue
		}
		if err := replaceFile(e.root+filepath.Clean(path), []byte(text)); err != nil {
			e.log("etc.failed path=%q error=%q", path, err)
		}
	}
}

// trust adds certificates to every store of the image, and as single files
// where the distribution's own tool finds them again. What is there already
// is left alone.
func (e *etc) trust(pem string) {
	pieces := certificates(pem)
	if len(pieces) == 0 {
		return
	}
	var grown []string
	for _, store := range stores() {
		path := e.root + store
		real, err := filepath.EvalSymlinks(path)
		if err != nil && store != debianStore || slices.Contains(grown, real) {
			continue // two names of one file get it once
		}
		if err := extend(path, pieces); err != nil {
			e.log("trust.failed store=%s error=%q", store, err)
			continue
		}
		if real, err = filepath.EvalSymlinks(path); err == nil {
			grown = append(grown, real)
		}
	}
	for i, dir := range anchors() {
		if _, err := os.Stat(e.root + dir); err != nil && i > 0 {
			continue
		}
		for _, piece := range pieces {
			sum := sha256.Sum256([]byte(piece))
			path := e.root + dir + "/tupper-" + hex.EncodeToString(sum[:6]) + ".crt"
			if err := replaceFile(path, []byte(piece)); err != nil {
				e.log("trust.failed path=%s error=%q", path, err)
			}
		}
	}
}

// certificates cuts a bundle into its PEM blocks; what lies between is a
// comment.
func certificates(pem string) []string {
	const begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
	var pieces []string
	for {
		_, rest, ok := strings.Cut(pem, begin)
		if !ok {
			return pieces
		}
		body, after, ok := strings.Cut(rest, end)
		if !ok {
			return pieces
		}
		piece := begin + body + end + "\n"
		if !slices.Contains(pieces, piece) {
			pieces = append(pieces, piece)
		}
		pem = after
	}
}

// extend appends those pieces to a bundle that it does not have.
func extend(path string, pieces []string) error {
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	add := ""
	for _, piece := range pieces {
		if !strings.Contains(string(have), strings.TrimSpace(piece)) {
			add += piece
		}
	}
	if add == "" {
		return nil
	}
	if err != nil { // missing, or a link to nothing
		return replaceFile(path, []byte(add))
	}
	if len(have) > 0 && have[len(have)-1] != '\n' {
		add = "\n" + add
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(add)
	return errors.Join(err, file.Close())
}

// replaceFile makes path a regular file with this text, whatever was there: a
// link (to nothing, in a circle) goes, an existing file is replaced in one
// step. A mount point cannot be replaced and is written.
func replaceFile(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".tupper-")
	if err != nil {
		return os.WriteFile(path, text, 0o644)
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(file.Name())
	if errors.Is(err, syscall.EBUSY) {
		return os.WriteFile(path, text, 0o644)
	}
	return err
}
