package boot

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

// rehearsal is how long it may take: an image whose shell hangs must not stop a
// machine.
const rehearsal = 5 * time.Second

// rehearse lets the image's shell run once and do nothing, so that what a first
// command needs is in memory already when a machine is saved for others: reading
// it from the packed image takes an emulated processor longest. The shell reads
// none of the image's own scripts, for these may do anything, and once for all.
//
// An image without a shell has nothing to rehearse.
func rehearse() {
	if !runs("/bin/bash", "--noprofile", "--norc", "-c", ":") {
		runs("/bin/sh", "-c", ":")
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
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Sys: &syscall.SysProcAttr{Setsid: true},
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
