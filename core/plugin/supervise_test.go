package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func request(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: longTTL}
}

func watch(t *testing.T, b driver.Backend) <-chan driver.Notice {
	t.Helper()
	notices := make(chan driver.Notice, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = driver.WatcherOf(b).Watch(ctx, func(n driver.Notice) { notices <- n })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return notices
}

// next waits for the next notice, which must have the given kind and be about the plugin.
func next(t *testing.T, notices <-chan driver.Notice, kind driver.NoticeKind) driver.Notice {
	t.Helper()
	select {
	case n := <-notices:
		if n.Kind != kind || !n.Plugin {
			t.Fatalf("got notice %+v, want kind %d of the plugin", n, kind)
		}
		return n
	case <-time.After(timeout):
		t.Fatalf("no notice of kind %d within %v", kind, timeout)
	}
	panic("unreachable")
}

func signalPlugin(t *testing.T, b driver.Backend, sig syscall.Signal) int {
	t.Helper()
	pid, ok := plugin.ProcessOf(b)
	if !ok {
		t.Fatal("the plugin is down")
	}
	send := func(pid int) error { return syscall.Kill(pid, sig) }
	if sig == syscall.SIGSTOP {
		send = plugintest.Freeze
	}
	if err := send(pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestKilledPluginIsReplaced(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	token, err := b.TryAcquire(t.Context(), request("jobs", "a"))
	if err != nil {
		t.Fatal(err)
	}
	notices := watch(t, b)
	for range 3 {
		pid := signalPlugin(t, b, syscall.SIGKILL)
		down := next(t, notices, driver.NoticeDown)
		if !strings.Contains(down.Err.Error(), "killed") {
			t.Errorf("Down says %v", down.Err)
		}
		next(t, notices, driver.NoticeUp)
		if now, ok := plugin.ProcessOf(b); !ok || now == pid {
			t.Errorf("process is %d %t after %d was killed", now, ok, pid)
		}
		r := request("jobs", "a")
		r.Token = token
		if err := b.Renew(t.Context(), r); err != nil {
			t.Errorf("renewal through the new plugin: %v", err)
		}
	}
}

func TestPanicIsACrash(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	notices := watch(t, b)
	_, err := b.Inspect(t.Context(), "panic")
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("the call that crashed: %v", err)
	}
	down := next(t, notices, driver.NoticeDown)
	if text := down.Err.Error(); !strings.Contains(text, "exit status 2") || !strings.Contains(text, "panic: out of luck") {
		t.Errorf("Down says %v", text)
	}
	next(t, notices, driver.NoticeUp)
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFrozenPluginIsReplaced(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	notices := watch(t, b)

	// When a call reaches its deadline, the host must send a heartbeat at once, and detect the freeze.
	prompt(t, 900*time.Millisecond, "until a frozen plugin is found", func() {
		signalPlugin(t, b, syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := b.Inspect(ctx, "jobs")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("a call to a frozen plugin: %v", err)
		}
		next(t, notices, driver.NoticeDown)
	})
	next(t, notices, driver.NoticeUp)

	// When no call is made, the regular heartbeats must detect the freeze.
	signalPlugin(t, b, syscall.SIGSTOP)
	next(t, notices, driver.NoticeDown)
	next(t, notices, driver.NoticeUp)
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// The host must not replace a plugin that was stopped for at most 200 ms.
func TestShortPauseIsForgiven(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	const tries, moment = 10, 200 * time.Millisecond
	for range tries {
		stopped := time.Now()
		pid := signalPlugin(t, b, syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := b.Inspect(ctx, "jobs")
		cancel()
		if err == nil {
			t.Error("a stopped plugin has answered")
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(stopped); took > moment {
			t.Logf("stopped for %v, which is no moment: again", took)
			eventually(t, timeout, "the plugin answers", func() bool { return b.Check(t.Context()) == nil })
			continue
		}
		if _, err := b.Inspect(t.Context(), "jobs"); err != nil {
			t.Error(err)
		}
		if now, _ := plugin.ProcessOf(b); now != pid {
			t.Errorf("process %d was replaced by %d", pid, now)
		}
		return
	}
	t.Errorf("in none of %d tries did the pause end within %v", tries, moment)
}

// After a pause of the host process, the host must not think that its plugin is frozen.
func TestPauseOfTheHostIsNoFreeze(t *testing.T) {
	s := newStore(t)
	h, err := plugintest.StartHost(t.Context(), plugintest.HostSpec{Plugin: "far", Path: link(t, "far"), Config: s.config()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	before, err := h.PluginPid(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := h.Freeze(); err != nil {
			t.Fatal(err)
		}
		// Sleep without polling, because the host process must stay frozen for this time.
		<-time.After(1500 * time.Millisecond)
		if err := h.Resume(); err != nil {
			t.Fatal(err)
		}
		if after, err := h.PluginPid(t.Context()); err != nil || after != before {
			t.Fatalf("plugin %d became %d, %v", before, after, err)
		}
	}
}

func TestCallsFailAtOnceWhileDown(t *testing.T) {
	path := link(t, "far")
	s := newStore(t)
	b, err := plugin.Open(t.Context(), "far", &plugin.Options{Path: path, Config: s.config(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	notices := watch(t, b)
	// Without its binary the plugin stays down, while the host tries again and again to start it.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	signalPlugin(t, b, syscall.SIGKILL)
	next(t, notices, driver.NoticeDown)
	prompt(t, 200*time.Millisecond, "for a call while the plugin is down", func() {
		_, err := b.TryAcquire(t.Context(), request("jobs", "a"))
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), `"far" is down`) {
			t.Errorf("got %v", err)
		}
	})
	if _, ok := plugin.ProcessOf(b); ok {
		t.Error("a plugin that is down has a process")
	}
	late := watch(t, b)
	next(t, late, driver.NoticeDown)

	eventually(t, timeout, "the crash loop is told", func() bool {
		_, err := b.TryAcquire(t.Context(), request("jobs", "a"))
		return strings.Contains(err.Error(), "in a row, next try in")
	})
	start := time.Now()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Close took %v: it has waited for the next try, which is 7.5 s away at least", took)
	}
	if _, err := b.TryAcquire(t.Context(), request("jobs", "a")); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := newStore(t)
	path := link(t, "far")
	before := census(t)
	for _, frozen := range []bool{false, true} {
		b, err := plugin.Open(t.Context(), "far", &plugin.Options{Path: path, Config: s.config(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if frozen {
			signalPlugin(t, b, syscall.SIGSTOP)
		}
		prompt(t, 3*time.Second, fmt.Sprintf("for Close, frozen: %t", frozen), func() {
			var wg sync.WaitGroup
			for range 3 { // Close is idempotent, and may be called concurrently
				wg.Go(func() {
					if err := b.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
	before.check(t)
}

// If its ctx has ended, Close must not wait for the plugin to shut down by itself.
func TestCloseEndsWithItsCtx(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	prompt(t, time.Second, "for Close", func() {
		_ = b.Close(ctx) // Close may fail or succeed, because the plugin may end before the kill
	})
}

func TestManyRoundsLeaveNothing(t *testing.T) {
	s := newStore(t)
	path := link(t, "far")
	quiet := slog.New(slog.DiscardHandler)
	round := func(harm func(driver.Backend)) {
		b, err := plugin.Open(t.Context(), "far", &plugin.Options{Path: path, Config: s.config(), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		r := request("jobs", "a")
		r.Owner = time.Now().Format("150405000000000")
		token, err := b.TryAcquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Token = token; b.Release(t.Context(), r) != nil {
			t.Error("release failed")
		}
		harm(b)
	}
	round(func(driver.Backend) {})
	before := census(t)
	for i := range 20 {
		round(func(b driver.Backend) {
			switch i % 3 {
			case 1:
				signalPlugin(t, b, syscall.SIGKILL)
			case 2:
				signalPlugin(t, b, syscall.SIGSTOP)
			}
		})
	}
	before.check(t)
}

// The plugin must ignore SIGPIPE, SIGTERM, SIGINT and SIGHUP, and have a separate process group.
func TestPluginIgnoresSignalsWhileTheHostLives(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	before, _ := plugin.ProcessOf(b)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE} {
		signalPlugin(t, b, sig)
		if err := b.Check(t.Context()); err != nil {
			t.Errorf("after %v: %v", sig, err)
		}
	}
	if now, _ := plugin.ProcessOf(b); now != before {
		t.Errorf("process %d was replaced by %d", before, now)
	}
	if group, err := syscall.Getpgid(before); err != nil || group == syscall.Getpgrp() {
		t.Errorf("the plugin is in process group %d, which is ours: %v", group, err)
	}
}

// The host must log what the plugin prints and logs, at the plugin's levels and
// without secrets. The plugin's arguments and environment must not contain secrets.
func TestSecretsStaySecret(t *testing.T) {
	s := newStore(t)
	t.Setenv("UNRELATED_SECRET", "swordfish")
	var out syncBuffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := s.config()
	cfg["password"] = secret
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: cfg, Logger: log, Env: []string{"MINE=yes"}})
	pid, _ := plugin.ProcessOf(b)
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile("/proc/" + itoa(pid) + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("hunter2")) || bytes.Contains(text, []byte("swordfish")) {
			t.Errorf("%s shows a secret: %q", file, text)
		}
		if file == "environ" && !bytes.Contains(text, []byte("MINE=yes")) {
			t.Errorf("the option Env did not reach the plugin: %q", text)
		}
	}
	eventually(t, timeout, "the plugin's output is logged", func() bool {
		text := out.String()
		return strings.Contains(text, "printing does not disturb") && strings.Contains(text, "level=INFO msg=opening")
	})
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the log shows the secret: %s", out.String())
	}
}
