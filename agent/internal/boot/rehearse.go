package boot

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"
)

// rehearsal is how long it may take: an image whose shell hangs must not stop a
// machine.
const rehearsal = 5 * time.Second

// rehearse lets the image's shell run once and do nothing, so that what a first
// command needs is in memory already when a machine is saved for others: reading
// it from the packed image takes an emulated processor longest. The shell sees
// the image alone, where it cannot write, and has what another processor can
// give it while the machine is being made; the function that is returned waits
// for its end.
//
// An image without a shell has nothing to rehearse.
func rehearse(image string) func() {
	for _, argv := range [][]string{
		{"/bin/bash", "--noprofile", "--norc", "-c", ":"}, {"/bin/sh", "-c", ":"},
	} {
		if end := begin(image, argv...); end != nil {
			return end
		}
	}
	return func() {}
}

// glanceAtFiles reads what a shell reads when it begins. It runs none of the
// image's own scripts, for these may do anything, and once for all.
func glanceAtFiles() {
	for _, pattern := range []string{
		"/etc/passwd", "/etc/group", "/etc/profile", "/etc/profile.d/*", "/etc/bash.bashrc",
		"/root/.bash*", "/root/.profile", "/home/*/.bash*", "/home/*/.profile",
	} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			glance(path)
		}
	}
}

// glance reads the begin of a file.
func glance(path string) {
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
		return
	}
	if file, err := os.Open(path); err == nil {
		_, _ = file.Read(make([]byte, 32<<10))
		_ = file.Close()
	}
}

// practise decodes settings once, so that how it is done is known to those that
// begin here, and gives the memory back that the boot has used.
func practise() {
	const like = `{"agent":{"envVars":{"a":"b"},"files":{"a":"b"},"limits":{},"deadline":1.5},"network":{},"mounts":[{}]}`
	_ = json.Unmarshal([]byte(like), new(Settings))
	debug.FreeOSMemory()
}

// begin starts a program in an image; what it returns waits for the end, and ends
// what the program leaves behind. It returns nil if there is no such program.
func begin(image string, argv ...string) func() {
	process, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"},
		Sys: &syscall.SysProcAttr{Setsid: true, Chroot: image},
	})
	if err != nil {
		return nil
	}
	kill := func() { _ = syscall.Kill(-process.Pid, syscall.SIGKILL) }
	limit := time.AfterFunc(rehearsal, kill)
	return func() {
		_, _ = process.Wait()
		limit.Stop()
		kill()
	}
}
