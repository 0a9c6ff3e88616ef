package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// listen opens one address: "unix:PATH" or "tcp:HOST:PORT". A socket that is
// left over from an earlier run is removed first. More transports get a case
// here.
func listen(address string) (net.Listener, error) {
	kind, rest, _ := strings.Cut(address, ":")
	switch kind {
	case "unix":
		if err := os.MkdirAll(filepath.Dir(rest), 0o755); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		if err := os.Remove(rest); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: rest, Net: "unix"})
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		l.SetUnlinkOnClose(false) // the host may have moved it
		return l, nil
	case "tcp":
		l, err := net.Listen("tcp", rest)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		return l, nil
	}
	return nil, fmt.Errorf("listen on %q: want unix:PATH or tcp:HOST:PORT: %w", address, syscall.EINVAL)
}
