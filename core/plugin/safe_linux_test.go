package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// links makes symbolic links below root. Each string in chain is "path -> target" for one link.
func links(t *testing.T, root string, chain ...string) {
	t.Helper()
	for _, l := range chain {
		path, target, _ := strings.Cut(l, " -> ")
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
}

// Open must check every directory on the path to the binary, even in the targets of links.
func TestOpenFollowsEveryComponentOfEveryLink(t *testing.T) {
	safe := copied(t, 0o755, 0o755)
	for what, tt := range map[string]struct {
		chain []string
		mode  fs.FileMode // mode of the directory "open"
		owner int         // owner of "open/sub"; -1 to leave it unchanged
		bad   bool
	}{
		"a link in the middle":           {[]string{"a/b -> ../open/c", "open/c -> " + safe}, 0o777, -1, true},
		"one in a sticky directory":      {[]string{"a/b -> ../open/c", "open/c -> " + safe}, 0o777 | fs.ModeSticky, -1, true},
		"a directory that is a link":     {[]string{"a/d -> ../open/d", "open/d -> " + filepath.Dir(safe), "a/b -> d/lockplugin-memory"}, 0o777, -1, true},
		"a directory below one":          {[]string{"open/sub/c -> " + safe, "a/b -> ../open/sub/c"}, 0o777, -1, true},
		"dots behind a link":             {[]string{"open/sub/x/y -> .", "a/d -> ../open/sub/x", "a/b -> d/../../../safe", "safe -> " + safe}, 0o777, -1, true},
		"our directory below a sticky":   {[]string{"open/sub/c -> " + safe, "a/b -> ../open/sub/c"}, 0o777 | fs.ModeSticky, -1, false},
		"another's directory below":      {[]string{"open/sub/c -> " + safe, "a/b -> ../open/sub/c"}, 0o777 | fs.ModeSticky, 65534, true},
		"writable by the group":          {[]string{"a/b -> ../open/c", "open/c -> " + safe}, 0o775, -1, false},
		"a dot in a link":                {[]string{"a/b -> ./../open/c", "open/c -> " + safe}, 0o755, -1, false},
		"nothing that others may change": {[]string{"a/d -> ../open/d", "open/d -> " + filepath.Dir(safe), "a/b -> d/lockplugin-memory"}, 0o755, -1, false},
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			links(t, root, tt.chain...)
			open := filepath.Join(root, "open")
			if tt.owner >= 0 {
				if os.Getuid() != 0 {
					t.Skip("only root can give a directory away")
				}
				if err := os.Chown(filepath.Join(open, "sub"), tt.owner, -1); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(open, tt.mode); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(root, "a", "b")
			if !tt.bad {
				plugintest.Open(t, "memory", &plugin.Options{Path: path})
				return
			}
			refused(t, "memory", plugin.Options{Path: path}, plugin.ErrUnsafe, "any user may write to "+open)
			if _, err := plugin.Describe(t.Context(), path); !errors.Is(err, plugin.ErrUnsafe) {
				t.Errorf("Describe runs it: %v", err)
			}
		})
	}
	t.Run("a loop", func(t *testing.T) {
		root := t.TempDir()
		links(t, root, "a -> b", "b -> a")
		refused(t, "memory", plugin.Options{Path: filepath.Join(root, "a")}, plugin.ErrNotExecutable, "too many levels of symbolic links")
	})
}

// If a plugin must be restarted and its binary is missing, the error is ErrNotFound, not ErrUnsafe.
func TestMissingBinaryIsNotUnsafe(t *testing.T) {
	path := copied(t, 0o755, 0o755)
	b := plugintest.Open(t, "memory", &plugin.Options{Path: path})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	signalPlugin(t, b, syscall.SIGKILL)
	eventually(t, timeout, "the missing file is the reason why there is no plugin", func() bool {
		_, err := b.TryAcquire(t.Context(), request("jobs", "a"))
		if err != nil && strings.Contains(err.Error(), "could be replaced") {
			t.Fatal(err)
		}
		return errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), plugin.ErrNotFound.Error())
	})
}

// nextDescriptor opens files until every descriptor number up to the highest in use is taken. It
// returns the number that the next opened file will get.
func nextDescriptor(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, e := range open {
		fd, _ := strconv.Atoi(e.Name())
		highest = max(highest, fd)
	}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if int(f.Fd()) >= highest {
			return int(f.Fd()) + 1
		}
	}
}

// If the descriptors run out, Open must fail with ErrExhausted, whichever file it cannot open.
func TestHostWithoutDescriptorsIsToldSo(t *testing.T) {
	path := copied(t, 0o755, 0o755)
	sums := filepath.Join(t.TempDir(), "sums")
	if err := os.WriteFile(sums, []byte("00  other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old) })
	next := nextDescriptor(t)
	refusals, opened := 0, false
	for more := range 40 {
		limit := old
		limit.Cur = uint64(next + more)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		b, err := plugin.Open(t.Context(), "memory", &plugin.Options{Path: path, StartTimeout: timeout})
		_, summed := plugin.Open(t.Context(), "memory", &plugin.Options{Path: path, Checksums: sums})
		_, described := plugin.Describe(t.Context(), path)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			opened = true
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		} else if refusals++; !errors.Is(err, plugin.ErrExhausted) {
			t.Errorf("with %d more descriptors: %v", more, err)
		}
		for _, err := range []error{summed, described} {
			if err != nil && !errors.Is(err, plugin.ErrExhausted) && !errors.Is(err, plugin.ErrNoChecksum) ||
				errors.Is(err, plugin.ErrNoChecksum) && !strings.Contains(err.Error(), "has no line") {
				t.Errorf("with %d more descriptors: %v", more, err)
			}
		}
	}
	if refusals == 0 || !opened {
		t.Errorf("%d refusals, opened: %t", refusals, opened)
	}
}

// TestDescribeIsCancelled cancels Describe at many moments, before and after the plugin's process
// ends. Describe must return each time.
func TestDescribeIsCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockplugin-memory")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
		if d, err := plugin.Describe(ctx, path); err == nil {
			t.Fatalf("%+v of a script that does nothing", d)
		}
		cancel()
	}
}

// Describe must leave no process behind, even if the plugin has started further processes.
func TestDescribeLeavesNoProcess(t *testing.T) {
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "pid")
	path := filepath.Join(dir, "lockplugin-memory")
	script := fmt.Sprintf("#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $! >%s\nexec %s \"$@\"\n", pidFile, plugintest.Build(t, memoryMain))
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if d, err := plugin.Describe(t.Context(), path); err != nil || d.Name != "memory" {
		t.Errorf("%+v, %v", d, err)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(timeout); plugintest.Running(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d, which the plugin started, is left", pid)
		}
	}
}
