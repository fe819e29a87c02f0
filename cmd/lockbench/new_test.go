package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// TestNewPluginCompiles writes a skeleton into this module, and lets the tools
// look at it and the plugin describe itself.
func TestNewPluginCompiles(t *testing.T) {
	dir, err := os.MkdirTemp(".", "skeleton-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	code, stdout, stderr := lockbench(t, "plugins", "new", "my-store", "-o", filepath.Join(dir, "store"))
	if code != exitOK || strings.Contains(stdout, "go.mod") || !strings.Contains(stdout, "lockplugin-my-store") {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v, %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", "./"+dir+"/...").CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
	binary := plugintest.Build(t, "./"+dir+"/store/lockplugin-my-store")
	ends(t, exitOK, "address", "plugins", "describe", binary)
	ends(t, exitUsage, "there already", "plugins", "new", "my-store", "-o", filepath.Join(dir, "store"))
}

func TestNewPluginOutsideOfAModule(t *testing.T) {
	dir := t.TempDir()
	ends(t, exitOK, "go mod tidy", "plugins", "new", "my-store", "-o", dir, "--replace", "../..", "--module", "example.com/mystore")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.Contains(string(text), "module example.com/mystore\n") || !strings.Contains(string(text), "=> "+root+"\n") {
		t.Errorf("go.mod: %v\n%s", err, text)
	}
	for name, want := range map[string]string{"My_Store": "small letters", "../x": "small letters"} {
		ends(t, exitUsage, want, "plugins", "new", name)
	}
}
