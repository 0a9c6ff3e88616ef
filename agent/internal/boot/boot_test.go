package boot

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

// What the kernel reads must have its own layout.
func TestLayouts(t *testing.T) {
	if size := unsafe.Sizeof(request{}); size != 40 {
		t.Errorf("struct ifreq has %d bytes", size)
	}
	var r route
	if size := unsafe.Sizeof(r); size != 120 {
		t.Errorf("struct rtentry has %d bytes", size)
	}
	if at := unsafe.Offsetof(r.gateway); at != 24 {
		t.Errorf("rt_gateway is at %d", at)
	}
	if at := unsafe.Offsetof(r.flags); at != 56 {
		t.Errorf("rt_flags is at %d", at)
	}
}

func TestSocketAddress(t *testing.T) {
	got := socketAddress(netip.MustParseAddr("10.1.2.3"))
	if got[0]+got[1] != 2 || [4]byte(got[4:8]) != [4]byte{10, 1, 2, 3} {
		t.Error(got)
	}
	if r := newRequest("a-name-that-is-too-long"); r.name[15] != 0 {
		t.Error(r.name)
	}
}

func TestBadNetworks(t *testing.T) {
	for _, n := range []Network{{Address: ""}, {Address: "10.0.0.1"}, {Address: "fd00::2/64"}} {
		if n.configure(nil) == nil {
			t.Errorf("%+v is accepted", n)
		}
	}
}

func TestDevicesAreFoundByName(t *testing.T) {
	class := t.TempDir()
	for device, name := range map[string]string{"vda": "tupper-disk\n", "vdb": "tupper-root", "vdc": ""} {
		if err := os.MkdirAll(filepath.Join(class, device), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, device, "serial"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := named(class, "serial", "tupper-root"); got != "vdb" {
		t.Error(got)
	}
	if got := named(class, "serial", "tupper-disk"); got != "vda" {
		t.Error(got)
	}
	if got := named(class, "serial", "tupper"); got != "" {
		t.Error(got)
	}
}

func TestModulesMayBeMissing(t *testing.T) {
	if err := loadModules(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}
