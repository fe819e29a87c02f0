package plugintest

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lockbench/lockbench/core/drivertest"
)

// builds are the binaries of this test run, by package.
var builds struct {
	sync.Mutex
	dir  string
	once map[string]func() (string, error)
}

// Build compiles the main package pkg (an import path, or a path relative to
// the test's directory) once per test run and returns the binary's path. Its
// base name is that of the package. Under the race detector it has it too.
// The test binary must run under [Main], or call [Clean]: what was built is
// removed at the end.
func Build(t drivertest.T, pkg string) string {
	t.Helper()
	binary, err := buildOnce(pkg)()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return binary
}

func buildOnce(pkg string) func() (string, error) {
	builds.Lock()
	defer builds.Unlock()
	if builds.once == nil {
		builds.once = map[string]func() (string, error){}
	}
	if builds.once[pkg] == nil {
		builds.once[pkg] = sync.OnceValues(func() (string, error) { return build(pkg) })
	}
	return builds.once[pkg]
}

func build(pkg string) (string, error) {
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, path.Base(filepath.ToSlash(pkg)))
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, pkg)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

func buildDir() (string, error) {
	builds.Lock()
	defer builds.Unlock()
	if builds.dir != "" {
		return builds.dir, nil
	}
	dir, err := os.MkdirTemp("", "plugintest-")
	builds.dir = dir
	return dir, err
}

// Main is the body of a TestMain: the test binary can be started again as a
// host process, and what [Build] made is removed at the end.
func Main(m *testing.M) {
	HostMain()
	if raceEnabled && os.Getenv("GORACE") == "" {
		// Each process would sleep for a second before it exits.
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	code := m.Run()
	Clean()
	os.Exit(code)
}

// Clean removes what [Build] made, for a TestMain that does not use [Main].
func Clean() {
	builds.Lock()
	defer builds.Unlock()
	if builds.dir != "" {
		os.RemoveAll(builds.dir)
	}
	builds.dir, builds.once = "", nil
}
