package plugintest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lockbench/lockbench/core/drivertest"
)

// builds holds the binaries that this test run has built.
var builds = struct {
	sync.Mutex
	dir  string
	done map[string]built
}{done: map[string]built{}}

type built struct {
	path string
	err  error
}

// Build compiles the main package pkg once per test run and returns the binary's path.
// pkg is an import path, or a path relative to the test's directory. The binary has the
// package's base name. If the test runs under the race detector, so does the binary.
// TestMain must use [Main] or, at its end, call [Clean], so that the binary is removed.
func Build(t drivertest.T, pkg string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	b, known := builds.done[pkg]
	if !known {
		b.path, b.err = build(pkg)
		builds.done[pkg] = b
	}
	if b.err != nil {
		t.Fatalf("%v", b.err)
	}
	return b.path
}

// The caller of this function must have locked the variable builds.
func build(pkg string) (binary string, err error) {
	if builds.dir == "" {
		if builds.dir, err = os.MkdirTemp("", "plugintest-"); err != nil {
			return "", err
		}
	}
	binary = filepath.Join(builds.dir, path.Base(filepath.ToSlash(pkg)))
	// "go run -exec=cp" is faster than "go build", because only "go run" caches linked binaries.
	args := []string{"run", "-exec=cp"}
	if Race {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, pkg, binary)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go run -exec=cp %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// Main is the body of a TestMain. It lets [StartHost] start the test binary as a host process. At
// the end, Main removes the binaries of [Build]. If the race detector is on and GORACE is not set,
// Main fails if a plugin or a host has reported a data race.
func Main(m *testing.M) {
	HostMain()
	races := ""
	if Race && os.Getenv("GORACE") == "" {
		// By default the race detector makes each process sleep for a second at its exit.
		options := "atexit_sleep_ms=0"
		if races, _ = os.MkdirTemp("", "races-"); races != "" { // otherwise, reports go to the standard error of each process
			options += " log_path=" + filepath.Join(races, "in")
		}
		os.Setenv("GORACE", options)
	}
	if signal.Ignored(os.Interrupt) { // a script's background job ignores SIGINT, and so would this process's children
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := m.Run()
	Clean()
	if races != "" {
		reports, _ := filepath.Glob(filepath.Join(races, "in.*"))
		for _, report := range reports {
			text, err := os.ReadFile(report)
			fmt.Printf("FAIL: a plugin or host has a data race (%v):\n%s\n", err, text)
			code = 1
		}
		os.RemoveAll(races)
	}
	os.Exit(code)
}

// Clean removes the binaries of [Build], for a TestMain that does not use [Main].
func Clean() {
	builds.Lock()
	defer builds.Unlock()
	if builds.dir != "" {
		os.RemoveAll(builds.dir)
	}
	builds.dir = ""
	clear(builds.done)
}
