package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/similar"
)

// Found is a plugin binary that [Open] would use for the backend called Name.
type Found struct {
	Name string
	Path string
}

// Discover returns the plugins in dirs, beside the running executable, and in PATH, sorted by name.
// If several plugins have the same name, Discover returns the one that [Open] would use.
func Discover(dirs []string) []Found {
	var found []Found
	seen := map[string]bool{}
	for _, dir := range searchDirs(dirs) {
		entries, _ := os.ReadDir(filepath.Clean(dir)) // after an error, there may be entries all the same
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name(), wire.Prefix)
			path := filepath.Join(dir, e.Name())
			if !ok || seen[name] || !nameForm.MatchString(name) || checkFile(path) != nil {
				continue
			}
			seen[name] = true
			found = append(found, Found{Name: name, Path: path})
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	return found
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// find returns the absolute path of the named plugin's binary, or an [*OpenError].
func find(name string, opts Options) (string, error) {
	if !nameForm.MatchString(name) {
		return "", &OpenError{Name: name, Reason: ErrBadName, Detail: "it must be of the form " + nameForm.String()}
	}
	if opts.Path != "" {
		return absolute(name, opts.Path)
	}
	for _, dir := range searchDirs(opts.Dirs) {
		path := filepath.Join(dir, wire.Prefix+name)
		if _, err := os.Stat(path); err == nil {
			return absolute(name, path)
		}
	}
	if checkFile(filepath.Join("bin", wire.Prefix+name)) == nil {
		// Note: find does not search the working directory, because any user may have written to it.
		return "", &OpenError{Name: name, Reason: ErrNotFound, Detail: fmt.Sprintf("bin/%s%s is neither beside this program nor in PATH, "+
			"as with go run: PATH=\"$PWD/bin:$PATH\" go run ., or plugin.Options{Dirs: []string{\"bin\"}}", wire.Prefix, name)}
	}
	var names []string
	for _, f := range Discover(opts.Dirs) {
		names = append(names, f.Name)
	}
	detail := "no plugin is installed; looked in " + strings.Join(searchDirs(opts.Dirs), ", ")
	if len(names) > 0 {
		detail = strings.TrimPrefix(similar.Suggest(name, names), "; ")
	}
	if len(similar.To(name, names)) == 0 {
		// This command is only a hint, because the plugin may come from another vendor.
		detail += fmt.Sprintf("; lockbench's own is built with: go get -tool github.com/lockbench/lockbench/plugins/%s/%s%[1]s && go build -o bin/ tool", name, wire.Prefix)
	}
	return "", &OpenError{Name: name, Reason: ErrNotFound, Detail: detail}
}

func absolute(name, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", &OpenError{Name: name, Path: path, Reason: ErrNotFound, Detail: err.Error(), Cause: err}
	}
	return abs, nil
}

func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s has mode %v", path, info.Mode().Perm())
	}
	return nil
}

// searchDirs returns the directories in which to search for plugins, in order. It omits relative
// entries of PATH, as package os/exec does.
func searchDirs(dirs []string) []string {
	all := slices.Clone(dirs)
	if exe, err := os.Executable(); err == nil {
		all = append(all, filepath.Dir(exe))
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			all = append(all, dir)
		}
	}
	return all
}

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
