package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Program describes a program that lockbench needs, such as a server, and says if it was found.
type Program struct {
	Name string // "redis-server"
	For  string // what it is needed for
	Path string // "" when Err is not nil
	// Version is the version that the program prints, or "" if it prints none.
	Version string
	// Built says how to build the program from source, or is "" if it can only be installed.
	Built string
	// Err says why the program cannot be used. It is a [*NotInstalledError] if
	// the program is missing.
	Err error
}

// versionTimeout is the time limit for a program to print its version. docker may ask its daemon.
const versionTimeout = 5 * time.Second

func ContainerPrograms() []Program {
	docker := Wanted{Name: dockerProgram, Debian: "docker.io", Homebrew: "docker"}.Program()
	docker.For = "--env compose"
	if docker.Err != nil {
		return []Program{docker}
	}
	return []Program{docker, {Name: dockerCompose, For: docker.For, Path: docker.Path}}
}

const (
	dockerProgram = "docker"
	dockerCompose = "docker compose"
)

// numbered matches the version in a program's output.
var numbered = regexp.MustCompile(`\d+\.\d+[\w.+~-]*`)

// AskVersion runs the program to set Version. It sets Err if the program or docker's daemon fails.
func (p *Program) AskVersion(ctx context.Context) {
	if p.Err != nil {
		return
	}
	args := []string{"--version"}
	if p.Name == dockerCompose {
		args = []string{"compose", "version"}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.Path, args...).CombinedOutput()
	switch {
	case err != nil && p.Name == dockerCompose:
		p.Path, p.Err = "", errNoComposeV2
	case err != nil:
		p.Path, p.Err = "", errors.Join(errors.New("it does not start"), err)
	default:
		p.Version = string(numbered.Find(out))
		if p.Name == dockerProgram {
			if _, err := docker(ctx, nil, "version", "--format", "{{.Server.Version}}"); err != nil {
				p.Err = fmt.Errorf("its daemon does not answer: %w", err)
			}
		}
	}
}

// errNoComposeV2 says how to install compose v2. The package has different names in
// Ubuntu and Debian. In Debian 12, the package docker-compose has version 1.
var errNoComposeV2 = &NotInstalledError{
	Program: dockerCompose,
	how: "Ubuntu: apt-get install docker.io docker-compose-v2; Debian 13: apt-get install docker.io docker-compose; " +
		"Debian 12: scripts/docker builds it; Homebrew: brew install docker docker-compose",
}

// ErrNotInstalled is the error if a server's program is not found. Functions return a
// [*NotInstalledError], in which errors.Is finds ErrNotInstalled.
var ErrNotInstalled = errors.New("server is not installed")

// NotInstalledError names the program that is missing and where to get it.
type NotInstalledError struct {
	Program  string // "redis-server"
	Debian   string // name of the Debian and Ubuntu package
	Homebrew string // name of the Homebrew formula

	how string // if it is not "", How returns it
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("%s is not installed (%s)", e.Program, e.How())
}

// How returns the commands that install the program.
func (e *NotInstalledError) How() string {
	if e.how != "" {
		return e.how
	}
	return fmt.Sprintf("Debian, Ubuntu: apt-get install %s; Homebrew: brew install %s", e.Debian, e.Homebrew)
}

func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }

const composeFile = "compose.yaml"

// Tree returns the root of lockbench's source tree, or "" if it is neither above the working
// directory nor above this program.
func Tree() string {
	work, _ := os.Getwd() // a directory that is unknown is above nothing
	self, _ := os.Executable()
	for _, dir := range []string{work, filepath.Dir(self)} {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if b, err := os.ReadFile(filepath.Join(dir, composeFile)); err == nil && bytes.Contains(b, []byte("\nname: lockbench\n")) {
				return dir
			}
		}
	}
	return ""
}

// Wanted describes a program that Find looks for.
type Wanted struct {
	Name, Debian, Homebrew string // as in [NotInstalledError]
	// Variable is the environment variable by which users choose
	// another program. It is "" if there is none.
	Variable string
	// Before and After are directories to search before and after the PATH.
	Before, After []string
}

func (w Wanted) Find() (string, error) {
	if own := os.Getenv(w.Variable); own != "" {
		path, err := exec.LookPath(own)
		if err != nil {
			return "", fmt.Errorf("%s: %w", w.Variable, err)
		}
		return path, nil
	}
	for _, dir := range slices.Concat(w.Before, []string{""}, w.After) {
		if path, err := exec.LookPath(filepath.Join(dir, w.Name)); err == nil {
			return path, nil
		}
	}
	return "", &NotInstalledError{Program: w.Name, Debian: w.Debian, Homebrew: w.Homebrew}
}

// Program returns the path of the program, or why it was not found.
func (w Wanted) Program() Program {
	path, err := w.Find()
	return Program{Name: w.Name, Path: path, Err: err}
}

// requireVar names an environment variable. In it, CI lists servers, separated by commas. If a
// listed server is missing, tests fail instead of being skipped. "all" means every server.
const requireVar = "LOCKBENCH_REQUIRE"

// test is the part of testing.TB that Missing and Keep need.
type test interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Missing ends a test whose server could not be started. Parameter cause is the error of the start.
// If cause wraps [ErrNotInstalled], Missing skips the test, unless the variable LOCKBENCH_REQUIRE
// names the server or is "all". In all other cases Missing fails the test.
func Missing(t test, server string, cause error) {
	t.Helper()
	if !errors.Is(cause, ErrNotInstalled) {
		t.Fatalf("start %s: %v", server, cause)
	}
	required := strings.Split(os.Getenv(requireVar), ",")
	if slices.Contains(required, "all") || slices.Contains(required, server) {
		t.Fatalf("%s=%s demands %s: %v", requireVar, os.Getenv(requireVar), server, cause)
	}
	t.Skipf("no %s: %v", server, cause)
}

// Keep makes the test close the server s when the test ends. Parameter err is the error of the
// start of s. If err is not nil, Keep calls [Missing] instead.
func Keep(t test, server string, s io.Closer, err error) {
	t.Helper()
	if err != nil {
		Missing(t, server, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", server, err)
		}
	})
}
