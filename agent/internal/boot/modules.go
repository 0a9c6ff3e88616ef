package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// loadModules loads all modules of a directory in the order of their names,
// and removes them.
func loadModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel that needs none
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if err := loadModule(path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return os.RemoveAll(dir)
}

func loadModule(path string) error {
	image, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var none [1]byte
	_, _, errno := syscall.Syscall(syscall.SYS_INIT_MODULE,
		uintptr(unsafe.Pointer(unsafe.SliceData(image))), uintptr(len(image)), uintptr(unsafe.Pointer(&none[0])))
	if errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}
