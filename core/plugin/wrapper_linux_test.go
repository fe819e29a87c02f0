package plugin_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// wrapped writes a script that acts as the plugin "far". In the script, $plugin is the real binary.
func wrapped(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lockplugin-far")
	text := fmt.Sprintf("#!/bin/sh\nplugin=%s\n%s\n", link(t, "far"), script)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func pluginBelow(t *testing.T, wrapper int) (pid int) {
	t.Helper()
	eventually(t, timeout, "the wrapper has a child", func() bool {
		below := childrenOf(t, wrapper)
		if len(below) == 0 {
			return false
		}
		pid = below[0]
		return true
	})
	return pid
}

// TestWrapperIsNoHost kills a wrapper, or kills or freezes the plugin behind it, while
// the host lives. The lock must stay taken, and both old processes must end.
func TestWrapperIsNoHost(t *testing.T) {
	for name, script := range map[string]string{
		"shell":      "$plugin; exit $?",
		"background": "$plugin & wait",
		"deaf":       "trap '' TERM HUP INT; $plugin; exit $?",
		"supervisor": "while :; do $plugin; done",
		"session":    "setsid --wait $plugin",
	} {
		for harm, does := range map[string]func(wrapper, plugin int) error{
			"wrapper killed": func(wrapper, _ int) error { return syscall.Kill(wrapper, syscall.SIGKILL) },
			"plugin killed":  func(_, plugin int) error { return syscall.Kill(plugin, syscall.SIGKILL) },
			"plugin frozen":  func(_, plugin int) error { return syscall.Kill(plugin, syscall.SIGSTOP) },
		} {
			t.Run(name+"/"+harm, func(t *testing.T) {
				// Write the script before t.Parallel. If another test forks while the script is
				// open for writing, the child has it open too, and executing the script fails.
				path := wrapped(t, script)
				t.Parallel()
				s := newStore(t)
				b := plugintest.Open(t, "far", &plugin.Options{Path: path, Config: s.config()})
				r := request("jobs", "a")
				token, err := b.TryAcquire(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				wrapper, _ := plugin.ProcessOf(b)
				below := pluginBelow(t, wrapper)
				if err := does(wrapper, below); err != nil {
					t.Fatal(err)
				}
				eventually(t, timeout, "there is a new process", func() bool {
					if h := s.holder(t, "jobs"); h.Token != token {
						t.Fatalf("the lock was released: %+v", h)
					}
					pid, ok := plugin.ProcessOf(b)
					return ok && pid != wrapper
				})
				eventually(t, timeout, "neither of them runs", func() bool {
					return !plugintest.Running(wrapper) && !plugintest.Running(below)
				})
				r.Token = token
				if err := b.Renew(t.Context(), r); err != nil {
					t.Errorf("the lease is lost: %v", err)
				}
			})
		}
	}
}

func TestHostDeathBehindWrapper(t *testing.T) {
	for name, script := range map[string]string{"shell": "$plugin; exit $?", "session": "setsid --wait $plugin"} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			_, below := heldByHost(t, s, wrapped(t, script))
			killed := time.Now()
			eventually(t, timeout, "the lock is free", func() bool { return !s.holder(t, "jobs").Held() })
			t.Logf("free %v after the kill", time.Since(killed))
			eventually(t, timeout, "the plugin has ended", func() bool { return !plugintest.Running(below) })
		})
	}
}

// heldByHost starts a host that acquires the lock "jobs", and then kills the host. It returns the
// process ids of the host and its plugin.
func heldByHost(t *testing.T, s *store, path string) (host, below int) {
	t.Helper()
	h, err := plugintest.StartHost(t.Context(), plugintest.HostSpec{Plugin: "far", Path: path, Config: s.config()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Kill()
	if _, err := h.Acquire(t.Context(), "jobs", longTTL, 0); err != nil {
		t.Fatal(err)
	}
	wrapper, err := h.PluginPid(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	below = wrapper
	for len(childrenOf(t, below)) > 0 {
		below = childrenOf(t, below)[0]
	}
	return h.Pid(), below
}

// TestUnknownHostIsNotDeclaredDead starts a plugin that cannot find its host's process, for example
// because of a PID namespace. After the host's death, the plugin must exit and release nothing.
func TestUnknownHostIsNotDeclaredDead(t *testing.T) {
	for name, script := range map[string]string{
		"another start": "export LOCKPLUGIN_HOST_START=1; exec $plugin",
		"namespace":     "exec unshare --user --map-root-user --pid --fork --kill-child $plugin",
	} {
		t.Run(name, func(t *testing.T) {
			if name == "namespace" && os.Getuid() != 0 {
				t.Skip("only root surely may make one")
			}
			s := newStore(t)
			host, below := heldByHost(t, s, wrapped(t, script))
			eventually(t, timeout, "the plugin has ended", func() bool { return !plugintest.Running(below) })
			eventually(t, timeout, "its socket directory is gone", func() bool { return len(socketDirsOf(t, host)) == 0 })
			if h := s.holder(t, "jobs"); !h.Held() {
				t.Error("the lock was released")
			}
		})
	}
}

// TestOutputIsAlwaysRead checks that a plugin never blocks when it prints. The plugin
// prints a line that is too long for go-plugin, and then more bytes than a pipe holds.
func TestOutputIsAlwaysRead(t *testing.T) {
	s := newStore(t)
	printed := filepath.Join(t.TempDir(), "printed")
	path := wrapped(t, `$plugin | {
	read -r handshake; echo "$handshake"
	head -c 200000 /dev/zero | tr '\0' x
	head -c 200000 /dev/zero
	touch `+printed+`
	cat
}`)
	plugintest.Open(t, "far", &plugin.Options{Path: path, Config: s.config()})
	eventually(t, timeout, "all of it was read", func() bool {
		_, err := os.Stat(printed)
		return err == nil
	})
}

// TestInheritedDescriptorsAreClosed checks that a plugin closes a descriptor that its host opened
// without FD_CLOEXEC, as a library may do.
func TestInheritedDescriptorsAreClosed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	leaked, err := syscall.Dup(int(w.Fd())) // without FD_CLOEXEC
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	plugintest.Open(t, "memory", &plugin.Options{Path: plugintest.Build(t, memoryMain)})
	if err := errors.Join(syscall.Close(leaked), r.SetReadDeadline(time.Now().Add(timeout))); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the plugin has the other end of a pipe: %d, %v", n, err)
	}
}
