package user

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	root := t.TempDir()
	_ = os.Mkdir(filepath.Join(root, "etc"), 0o755)
	_ = os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0:r:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\nbroken\n"), 0o644)
	_ = os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nuser:x:1000:\nstaff:x:50:user,x\n"), 0o644)
	d := Open(root)
	for spec, want := range map[string][2]uint32{
		"user": {1000, 1000}, "1000": {1000, 1000}, "user:staff": {1000, 50}, "0:1000": {0, 1000}, "1234": {1234, 0}, "user:77": {1000, 77},
	} {
		a, err := d.Lookup(spec)
		if err != nil || a.UID != want[0] || a.GID != want[1] {
			t.Errorf("%s: %+v %v", spec, a, err)
		}
	}
	if a, _ := d.Lookup("user"); len(a.Groups) != 2 {
		t.Errorf("groups %v", a.Groups)
	}
	if a, _ := d.Lookup("1234"); a.Home != "/" {
		t.Errorf("home %s", a.Home)
	}
	if _, err := d.Lookup("nobody"); err == nil {
		t.Error("an unknown name is found")
	}
}

func TestFilesWithoutEnd(t *testing.T) {
	root := t.TempDir()
	_ = os.Mkdir(filepath.Join(root, "etc"), 0o755)
	passwd := filepath.Join(root, "etc/passwd")
	line := strings.Repeat("x", 1000) + ":x:1:1::/:/bin/sh\n"
	head := "user:x:1000:1000::/home/user:/bin/sh\n"
	_ = os.WriteFile(passwd, []byte(head+strings.Repeat(line, 20<<10)), 0o644)
	d := Open(root)
	if a, err := d.Lookup("user"); err != nil || a.UID != 1000 {
		t.Errorf("%+v %v", a, err)
	}
	if len(d.accounts) > 5000 {
		t.Errorf("%d accounts were read", len(d.accounts))
	}
	_ = os.Remove(passwd)
	if err := os.Symlink("/dev/urandom", passwd); err != nil {
		t.Fatal(err)
	}
	if a, err := d.Lookup("root"); err != nil || a.UID != 0 {
		t.Errorf("%+v %v", a, err)
	}
}
