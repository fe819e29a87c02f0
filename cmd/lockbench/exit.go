package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fatih/color"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/record"
)

// The exit codes.
const (
	exitOK          = 0
	exitInternal    = 1 // also a conformance failure
	exitUsage       = 2
	exitEnvironment = 3
	exitInvalid     = 4
	exitRegression  = 5
	exitUnsafe      = 6
	exitInterrupted = 130
)

var (
	errRegression = errors.New("regression")
	errConform    = errors.New("the plugin does not conform")
)

// interrupted is err, or that ctx has ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return bench.ErrInterrupted
	}
	return err
}

// exitCode is what the process ends with. A violation outranks everything.
func exitCode(err error) int {
	var usage *bench.UsageError
	var environment *bench.EnvError
	var invalid *bench.InvalidError
	var remote *outcome
	var app appError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &app):
		return int(app)
	case errors.Is(err, bench.ErrUnsafe):
		return exitUnsafe
	case errors.Is(err, bench.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &remote):
		return remote.Code
	case errors.As(err, &usage), errors.Is(err, record.ErrNotEmpty), errors.Is(err, record.ErrNotAFolder), errors.Is(err, record.ErrLater):
		return exitUsage
	case errors.Is(err, errRegression):
		return exitRegression
	case errors.As(err, &environment):
		return exitEnvironment
	case errors.As(err, &invalid):
		return exitInvalid
	}
	return exitInternal
}

// hintedError adds what to do about an error.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func hinted(err error, hint string) error { return &hintedError{err, hint} }

func usagef(format string, args ...any) error {
	return &bench.UsageError{Msg: fmt.Sprintf(format, args...)}
}

// complain writes an error as one line, and its hint as another.
func complain(w io.Writer, err error) {
	var app appError
	if err == nil || errors.As(err, &app) {
		return
	}
	name := "lockbench:"
	if colored(w) {
		name = paint(name, color.FgRed, color.Bold)
	}
	fmt.Fprintf(w, "%s %s\n", name, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
}

func hintOf(err error) string {
	var h *hintedError
	var environment *bench.EnvError
	var remote *outcome
	switch {
	case errors.As(err, &remote):
		return remote.Hint
	case errors.As(err, &h):
		return h.hint
	case errors.As(err, &environment):
		return environment.Hint
	case errors.Is(err, record.ErrNotEmpty):
		return "name another directory, or omit -o"
	}
	return ""
}
