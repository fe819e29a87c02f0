package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// Description is what a plugin can say about its backend without contacting a server.
type Description = wire.Description

const (
	describeTimeout = 15 * time.Second
	maxDescription  = 1 << 20
)

// Describe runs the plugin binary at path with "describe --json". Like [Open], Describe checks the
// binary, except for the checksum, and passes few environment variables to it. The plugin has ended
// when Describe returns. On Linux, Describe also kills what is left of the plugin's process group.
// The output may have at most 1 MiB. The error is an [*OpenError] unless ctx ended.
func Describe(ctx context.Context, path string) (Description, error) {
	l := &launcher{name: strings.TrimPrefix(filepath.Base(path), wire.Prefix)}
	path, err := absolute(l.name, path)
	if err != nil {
		return Description{}, err
	}
	l.path = path
	if err := l.verify(); err != nil {
		return Description{}, err
	}
	timed, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(path, "describe", "--json")
	cmd.Env = environ(nil)
	cmd.Stdout, cmd.Stderr = &limited{&stdout}, &limited{&stderr}
	cmd.WaitDelay = drainFor
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run := newOSProcess(path, nil, nil)
	err = run.finish(timed, cmd)
	var d Description
	switch {
	case ctx.Err() != nil:
		return d, fmt.Errorf("describe %s: %w", path, ctx.Err())
	case timed.Err() != nil:
		return d, l.fail(ErrHung, "describe took over %v", describeTimeout)
	case err != nil:
		return d, l.badBinary(fmt.Errorf("describe: %w", err))
	case run.status() != nil && !run.succeeded():
		open := l.fail(ErrNotPlugin, "describe: %s", run.outcome())
		open.Stderr = lastWords(stderr.String())
		return d, open
	}
	if err := json.Unmarshal(stdout.Bytes(), &d); err != nil {
		return d, l.failed(ErrStdout, fmt.Errorf("describe: %w", err))
	}
	return d, nil
}

var errTooLong = errors.New("too much output")

// limited is a buffer for at most maxDescription bytes.
type limited struct{ *bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxDescription {
		return 0, errTooLong
	}
	return l.Buffer.Write(b)
}

func lastWords(text string) []string {
	var words tail
	for line := range strings.Lines(strings.TrimSpace(text)) {
		words.add(strings.TrimSuffix(line, "\n"))
	}
	return words
}
