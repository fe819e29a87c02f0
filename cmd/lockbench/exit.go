package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

const (
	exitOK          = 0
	exitInternal    = 1 // also for a failed conformance check
	exitUsage       = 2
	exitEnvironment = 3
	exitInvalid     = 4
	exitRegression  = 5
	exitUnsafe      = 6
	exitInterrupted = 130
)

// exitCode returns the exit code for err. If err wraps several errors, the first case decides.
func exitCode(err error) int {
	var environment *bench.EnvError
	var invalid *bench.InvalidError
	var status bench.StatusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, bench.ErrUnsafe):
		return exitUnsafe
	case errors.Is(err, bench.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case bench.IsUsage(err):
		return exitUsage
	case errors.Is(err, bench.ErrRegression):
		return exitRegression
	case errors.As(err, &environment):
		return exitEnvironment
	case errors.As(err, &invalid):
		return exitInvalid
	}
	return exitInternal
}

func usagef(format string, args ...any) error {
	return &bench.UsageError{Msg: fmt.Sprintf(format, args...)}
}

// complain writes a line with the error, and a second line if the error has a hint.
func complain(w io.Writer, err error) {
	var status bench.StatusError
	if err == nil || errors.As(err, &status) {
		return
	}
	fmt.Fprintf(w, "lockbench: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if hint := bench.Hint(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
}
