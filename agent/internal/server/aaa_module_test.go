package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const maxBinary = 6 << 20

// TestAAAModuleStaysSmall holds what every sandbox pays for: no dependencies, no
// libc, less than 6 MiB, on both architectures. It runs before the reaper of
// the other tests exists, because that collects every child.
func TestAAAModuleStaysSmall(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mod), "require") {
		t.Error("go.mod has a require line")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		out := filepath.Join(t.TempDir(), arch)
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./cmd/tupper-agent")
		build.Dir = "../.."
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", arch, err, text)
		}
		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() >= maxBinary {
			t.Errorf("%s: %d bytes", arch, info.Size())
		}
	}
}
