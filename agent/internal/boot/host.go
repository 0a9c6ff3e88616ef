package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The host shows its directories below one, by this name.
const (
	shares    = "tupper-shares"
	shareRoot = "/dev/tupper-shares"
)

// Nothing is kept but what is mapped, so that the host's changes are seen; users
// are told apart, and judged by this kernel.
const shareOptions = "trans=virtio,version=9p2000.L,msize=262144,cache=mmap,access=client"

// mostLinks is how many links a path may have, as in the kernel.
const mostLinks = 40

// mountHost shows directories of the host. Whether they are read-only is the
// host's affair; here it is only said.
func mountHost(mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	const careful = syscall.MS_NOSUID | syscall.MS_NODEV
	if err := (mount{shares, shareRoot, "9p", careful, shareOptions}).do(); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := bindHost(m); err != nil {
			return fmt.Errorf("mount %s: %w", m.Path, err)
		}
	}
	return errors.Join(syscall.Unmount(shareRoot, syscall.MNT_DETACH), os.Remove(shareRoot))
}

func bindHost(m Mount) error {
	place := filepath.Clean("/" + m.Path)
	if err := makePlace(place, mostLinks); err != nil {
		return err
	}
	if err := syscall.Mount(filepath.Join(shareRoot, m.Name), place, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if !m.ReadOnly {
		return nil
	}
	const again = syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV
	return syscall.Mount("none", place, "", again, "")
}

// makePlace makes a directory and those above it, also where a link of the image
// leads to nowhere yet.
func makePlace(path string, links int) error {
	at := "/"
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		at = filepath.Join(at, name)
		err := os.Mkdir(at, 0o755)
		if err == nil {
			continue
		}
		if st, statErr := os.Stat(at); statErr == nil && st.IsDir() {
			continue
		}
		target, linkErr := os.Readlink(at)
		if linkErr != nil {
			return err
		}
		if links == 0 {
			return syscall.ELOOP
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		if err := makePlace(target, links-1); err != nil {
			return err
		}
	}
	return nil
}
