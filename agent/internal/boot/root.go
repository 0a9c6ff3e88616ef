package boot

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Where things lie until the root filesystem takes the place of the initramfs.
const (
	lower = "/lower"
	upper = "/disk"
	root  = "/root"
)

const plain = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
	}
	return nil
}

// mountKernel shows what the kernel itself has to say.
func mountKernel(root string) error {
	return all(
		mount{"proc", root + "/proc", "proc", plain, ""},
		mount{"sysfs", root + "/sys", "sysfs", plain, ""},
		mount{"devtmpfs", root + "/dev", "devtmpfs", syscall.MS_NOSUID, "mode=0755"},
	)
}

func all(mounts ...mount) error {
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// mountRoot mounts the read-only disk that all machines of an image share.
func mountRoot(events *events) error {
	device, err := events.disk("tupper-root")
	if err != nil {
		return err
	}
	var failures []error
	for _, kind := range []string{"squashfs", "erofs"} {
		err := mount{device, lower, kind, syscall.MS_RDONLY, ""}.do()
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// layRoot puts the machine's own disk over it.
func layRoot(events *events) error {
	device, err := events.disk("tupper-disk")
	if err != nil {
		return err
	}
	if err := (mount{device, upper, "ext4", syscall.MS_NOATIME, "discard"}).do(); err != nil {
		return err
	}
	for _, name := range []string{"/upper", "/work"} {
		if err := os.MkdirAll(upper+name, 0o755); err != nil {
			return err
		}
	}
	if err := copyOwner(lower, upper+"/upper"); err != nil {
		return err
	}
	data := "lowerdir=" + lower + ",upperdir=" + upper + "/upper,workdir=" + upper + "/work"
	return mount{"overlay", root, "overlay", 0, data}.do()
}

// copyOwner gives a directory the owner and the mode of another.
func copyOwner(from, to string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(from, &st); err != nil {
		return fmt.Errorf("stat %s: %w", from, err)
	}
	return errors.Join(os.Chown(to, int(st.Uid), int(st.Gid)), syscall.Chmod(to, st.Mode&0o7777))
}

// enterRoot makes the root filesystem the one that everybody sees.
func enterRoot() error {
	if err := mountKernel(root); err != nil {
		return err
	}
	err := all(
		mount{"devpts", root + "/dev/pts", "devpts", syscall.MS_NOSUID | syscall.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
		mount{"shm", root + "/dev/shm", "tmpfs", syscall.MS_NOSUID | syscall.MS_NODEV, "mode=1777"},
		mount{"mqueue", root + "/dev/mqueue", "mqueue", plain, ""},
		mount{"cgroup2", root + "/sys/fs/cgroup", "cgroup2", plain, "nsdelegate"},
	)
	if err != nil {
		return err
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
	} {
		if err := os.Symlink(target, root+"/dev/"+name); err != nil {
			return err
		}
	}
	if err := switchRoot(); err != nil {
		return err
	}
	return standInForSudo()
}

// standInForSudo shows this program wherever sudo is looked for.
func standInForSudo() error {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
		_, absent := os.Lstat(dir + "/sudo")
		if _, err := os.Stat(dir); err != nil || absent != nil && dir == "/usr/bin" {
			continue
		}
		if err := standIn(dir + "/sudo"); err != nil {
			return err
		}
	}
	return nil
}

// standIn shows this program at a path.
func standIn(path string) error {
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("/proc/self/exe", path, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the agent on %s: %w", path, err)
	}
	return nil
}

// switchRoot leaves the initramfs. What is left of it is the program itself.
func switchRoot() error {
	for _, path := range []string{"/dev", "/sys", "/proc"} {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	steps := []struct {
		what string
		err  error
	}{
		{"enter", os.Chdir(root)},
		{"move", syscall.Mount(".", "/", "", syscall.MS_MOVE, "")},
		{"chroot to", syscall.Chroot(".")},
		{"enter", os.Chdir("/")},
	}
	for _, step := range steps {
		if step.err != nil {
			return fmt.Errorf("%s the root filesystem: %w", step.what, step.err)
		}
	}
	return nil
}
