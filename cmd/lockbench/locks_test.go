package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// holder opens a client, as an application would.
func holder(t *testing.T, dir, addr string) *core.Client {
	t.Helper()
	b, err := plugin.Open(t.Context(), "redis", &plugin.Options{Dirs: []string{dir}, Config: map[string]string{"address": addr}, StartTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	c := core.New(b, &core.Options{Label: "billing-1", Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		_ = c.Close(context.WithoutCancel(t.Context())) // the error is about the broken lease
	})
	return c
}

func hold(t *testing.T, c *core.Client, name string) *core.Lease {
	t.Helper()
	l, err := c.Lock(name, &core.LockOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestLocks(t *testing.T) {
	dir := plugins(t)
	s := redisServer(t, nil)
	ask := func(code int, wants string, args ...string) (stdout string) {
		t.Helper()
		stdout, _ = ends(t, code, wants, append(append([]string{"locks"}, args...), "--target", "redis="+s.Addr(), "--plugin-dir", dir)...)
		return stdout
	}
	ask(exitOK, "no lock is held\n", "list", "redis")
	c := holder(t, dir, s.Addr())
	lease := hold(t, c, "jobs/refresh")
	hold(t, c, "orders\x1b[31m")

	if stdout := ask(exitOK, `"orders\x1b[31m"`, "list", "redis"); !strings.Contains(stdout, "jobs/refresh\n") || strings.Count(stdout, "billing-1") != 2 {
		t.Errorf("%q", stdout)
	}
	var docs []struct {
		Token uint64
		Text  string `json:"token_text"`
		Since time.Time
		TTLms int64 `json:"ttl_ms"`
	}
	stdout := ask(exitOK, "", "list", "redis", "jobs/", "--format", "json")
	if err := json.Unmarshal([]byte(stdout), &docs); err != nil || len(docs) != 1 || docs[0].Token != lease.Token() || docs[0].Text != strconv.FormatUint(lease.Token(), 10) || docs[0].TTLms < 1000 ||
		time.Since(docs[0].Since).Abs() > time.Hour {
		t.Errorf("%v: %s", err, stdout)
	}
	ask(exitOK, "billing-1", "inspect", "redis", "jobs/refresh")
	ask(exitOK, "nothing is free", "inspect", "redis", "nothing")

	ask(exitUsage, "--yes", "break", "redis", "jobs/refresh")
	ask(exitInternal, "not 7", "break", "redis", "jobs/refresh", "--yes", "--token", "7")
	if !lease.Valid() {
		t.Fatal("the lease was broken nevertheless")
	}
	rounded := strconv.FormatFloat(float64(lease.Token()), 'f', -1, 64) // the form in which jq 1.6 prints the token
	ask(exitOK, "broke the lease", "break", "redis", "jobs/refresh", "--yes", "--token", rounded)
	ask(exitInternal, "is not held", "break", "redis", "jobs/refresh", "--yes")
}

// lockbench must not break a lock whose holder is no lockbench client. It must name the lock's key,
// and a command that removes the key.
func TestBreakForeign(t *testing.T) {
	dir := plugins(t)
	s := redisServer(t, nil)
	for name, set := range map[string][]any{
		"text": {"SET", "app:text", "x"},
		"hash": {"HSET", "app:hash", "field", "x"},
	} {
		if err := redisserver.Do(t.Context(), s.Addr(), set...); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := lockbench(t, "locks", "break", "redis", name, "--yes", "--target", "redis="+s.Addr(), "--config", "redis.prefix=app:", "--plugin-dir", dir)
		if code != exitInternal || !strings.Contains(stderr, "a foreign client") || !strings.Contains(stderr, "redis-cli DEL 'app:"+name+"'") {
			t.Errorf("%s: exit %d, %q", name, code, stderr)
		}
	}
}

func TestDoctor(t *testing.T) {
	dir := plugins(t)
	code, stdout, stderr := lockbench(t, "env", "doctor", "--plugin-dir", dir)
	if code != exitOK || !strings.Contains(stdout, filepath.Join(dir, "lockplugin-redis")) {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	// Simulate a host on which docker is installed, but its daemon does not run.
	path := t.TempDir()
	client := "#!/bin/sh\n[ \"$1\" = --version ] && echo Docker version 27.1 && exit\necho Cannot connect to the daemon >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(path, "docker"), []byte(client), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	code, stdout, _ = lockbench(t, "env", "doctor", "--plugin-dir", dir)
	for _, want := range []string{"--  docker 27.1 for --env compose: its daemon does not answer: docker version: exit status 1: Cannot connect to the daemon start it", "--  redis-server", "apt-get install redis-server", "--target"} {
		if code != exitOK || !strings.Contains(strings.Join(strings.Fields(stdout), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("exit %d, %q does not say %q", code, stdout, want)
		}
	}
	ends(t, exitEnvironment, "make build", "env", "doctor")
}

// If a plugin's file was renamed, lockbench must ask the plugin for the name of its backend.
func TestLocksOfARenamedPlugin(t *testing.T) {
	dir := plugins(t)
	server := redisServer(t, nil)
	renamed := filepath.Join(t.TempDir(), "lockplugin-yours")
	if err := os.Symlink(filepath.Join(dir, "lockplugin-redis"), renamed); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"locks", "list", renamed, "--target", "redis=" + server.Addr()},
		{"plugins", "describe", renamed},
	} {
		ends(t, exitOK, "", args...)
	}
	ends(t, exitUsage, `the backend is "redis"`, "locks", "list", renamed, "--target", "yours="+server.Addr())
}
