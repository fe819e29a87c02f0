package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// errNoComposeV2 says how to install compose v2: Ubuntu and Debian give the package
// different names, and Debian had version 1 under its name.
var errNoComposeV2 = &NotInstalledError{
	Program: "docker compose",
	how: "Ubuntu: apt-get install docker.io docker-compose-v2; Debian 13: apt-get install docker.io docker-compose; " +
		"Debian 12: scripts/docker builds it; Homebrew: brew install docker docker-compose",
}

// ErrNotInstalled: the server's program is not on the PATH. It comes as a
// [*NotInstalledError].
var ErrNotInstalled = errors.New("server is not installed")

// NotInstalledError names the program that is missing and where to get it.
type NotInstalledError struct {
	Program  string // "redis-server"
	Debian   string // name of the Debian and Ubuntu package
	Homebrew string // name of the Homebrew formula

	how string // instead of the commands, where they do not serve
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("%s is not installed (%s)", e.Program, e.How())
}

// How says how to install it, as commands.
func (e *NotInstalledError) How() string {
	if e.how != "" {
		return e.how
	}
	return fmt.Sprintf("Debian, Ubuntu: apt-get install %s; Homebrew: brew install %s", e.Debian, e.Homebrew)
}

// Is makes errors.Is(err, ErrNotInstalled) true.
func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }

// Wanted is a program that may be installed.
type Wanted struct {
	Name, Debian, Homebrew string // as in [NotInstalledError]
	// Variable is that of the environment which names another program instead, if
	// there is one.
	Variable string
	// Before and After are directories where it is looked for beside the PATH.
	Before, After []string
}

// Find looks for it.
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
