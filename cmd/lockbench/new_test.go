package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
)

// TestNewPluginCompiles writes the skeletons of plugins into this module and compiles them.
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
	ends(t, exitOK, "lockplugin-cas-store", "plugins", "new", "cas-store", "--cas", "-o", filepath.Join(dir, "cas"))
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

// pythonWithGRPC changes PATH so that python3 has the modules that the skeleton needs.
func pythonWithGRPC(t *testing.T) {
	t.Helper()
	for _, dirs := range []string{os.Getenv("PATH"), "/usr/bin:" + os.Getenv("PATH")} {
		t.Setenv("PATH", dirs)
		if exec.CommandContext(t.Context(), "python3", "-c", "import grpc, google.protobuf").Run() == nil {
			return
		}
	}
	servers.Missing(t, "python", &servers.NotInstalledError{Program: "grpc for python3", Debian: "python3-grpcio python3-protobuf", Homebrew: "python"})
}

// The Python skeleton speaks only version 1 of the protocol. So this test fails if hosts no longer
// support version 1.
func TestNewPluginInPython(t *testing.T) {
	pythonWithGRPC(t)
	dir := filepath.Join(t.TempDir(), "store")
	ends(t, exitOK, "lockplugin-py-store", "plugins", "new", "py-store", "--lang", "python", "-o", dir)
	ends(t, exitUsage, "are of Go", "plugins", "new", "py-store", "--lang", "python", "--cas")
	binary := filepath.Join(dir, "lockplugin-py-store")
	ends(t, exitOK, "begins the names of all locks", "plugins", "describe", binary)
	if os.Getenv("LOCKBENCH_LONG") == "1" {
		ends(t, exitOK, " 0 failed; 0 could not be checked", "conform", binary, "--mtls=off", "--require", "--config", "py-store.path={dir}/locks.db")
		return
	}
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		config := driver.Config{"path": filepath.Join(dir, "locks.db"), "prefix": rand.Text()}
		return plugintest.BinaryWith(binary, plugin.Options{NoMTLS: true, Config: config})(t)
	}, inPython...)
}

// inPython lists the conformance cases of a short test. They check the most in little time.
var inPython = []string{
	"K2 a refused try leaves nothing behind", "K2 try decides once and says who holds", "K3 a withdrawn owner is refused",
	"K6 names are kept as they are and never collide", "L6 tokens rise over release", "L7 release compares the token",
	"L7 the lock of a killed host is free at once", "L7 a killed host's AtLeast is kept", "L8 another process renews and releases a lease",
}
