package boot

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnImageWithoutAShellHasNothingToRehearse(t *testing.T) {
	rehearse(t.TempDir())()
}

func TestARehearsalThatFailsIsOver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root needs root")
	}
	image := t.TempDir()
	if err := os.Mkdir(filepath.Join(image, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "bin", "bash"), []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if end := begin(image, "/bin/bash"); end != nil {
		t.Fatal("a file that is no program was started")
	}
	rehearse(image)()
}

func TestAProgramOfAnImageIsWaitedFor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root needs root")
	}
	left := filepath.Join(t.TempDir(), "left")
	end := begin("/", "/bin/sh", "-c", "sleep 0.05; echo done > "+left)
	if end == nil {
		t.Fatal("the shell was not started")
	}
	end()
	if _, err := os.Stat(left); err != nil {
		t.Fatal(err)
	}
}
