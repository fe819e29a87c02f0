package servers

import (
	"errors"
	"fmt"
	"os/exec"
)

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

// Find looks for a program on the PATH.
func Find(program, debian, homebrew string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &NotInstalledError{Program: program, Debian: debian, Homebrew: homebrew}
	}
	return path, nil
}
