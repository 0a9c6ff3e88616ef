package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// events tells when the kernel has found a device.
type events struct{ fd int }

const kernelGroup = 1 // the kernel's own messages, not udev's

func listenEvents() (*events, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, syscall.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: kernelGroup}); err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	return &events{fd}, nil
}

func (e *events) close() { _ = syscall.Close(e.fd) }

// until calls find now and after every change of devices, as long as it finds
// nothing.
func (e *events) until(what string, find func() string) (string, error) {
	var buf [4096]byte
	for end := time.Now().Add(patience); ; {
		if found := find(); found != "" {
			return found, nil
		}
		left := time.Until(end)
		if left <= 0 {
			return "", fmt.Errorf("there is no %s", what)
		}
		wait := syscall.NsecToTimeval(left.Nanoseconds())
		if err := syscall.SetsockoptTimeval(e.fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait); err != nil {
			return "", fmt.Errorf("wait for %s: %w", what, err)
		}
		// Messages that were lost are as good: the next look finds what they said.
		_, _, _ = syscall.Recvfrom(e.fd, buf[:], 0)
	}
}

// named finds the directory below class in whose file a text stands.
func named(class, file, text string) string {
	matches, _ := filepath.Glob(filepath.Join(class, "*", file))
	for _, path := range matches {
		if have, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(have)) == text {
			return strings.TrimPrefix(strings.TrimSuffix(path, "/"+file), class+"/")
		}
	}
	return ""
}

// disk waits for the disk with a serial number; its path.
func (e *events) disk(serial string) (string, error) {
	name, err := e.until("disk "+serial, func() string { return named("/sys/block", "serial", serial) })
	return "/dev/" + name, err
}
