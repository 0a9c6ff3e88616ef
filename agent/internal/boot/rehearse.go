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
// it from the packed image takes an emulated processor longest. The shell runs
// none of the image's own scripts, for these may do anything, and once for all;
// they are only read.
//
// An image without a shell has nothing to rehearse.
func rehearse() {
	for _, pattern := range []string{
		"/etc/passwd", "/etc/group", "/etc/profile", "/etc/profile.d/*", "/etc/bash.bashrc",
		"/root/.bash*", "/root/.profile", "/home/*/.bash*", "/home/*/.profile",
	} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			glance(path)
		}
	}
	if !runs("/bin/bash", "--noprofile", "--norc", "-c", ":") {
		runs("/bin/sh", "-c", ":")
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

// runs says whether a program runs and succeeds. What it leaves behind is ended.
func runs(argv ...string) bool {
	process, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return false
	}
	kill := func() { _ = syscall.Kill(-process.Pid, syscall.SIGKILL) }
	defer time.AfterFunc(rehearsal, kill).Stop()
	state, err := process.Wait()
	kill()
	return err == nil && state.Success()
}
