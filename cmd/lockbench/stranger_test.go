package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// A claim file lists what a store does not promise. lockbench must check all other promises.
func TestStranger(t *testing.T) {
	redisServer(t, nil) // skips without a Redis server
	dir := t.TempDir()
	text, err := os.ReadFile(plugintest.Build(t, "github.com/lockbench/lockbench/bench/internal/faults/planted"))
	t.Chdir(dir)
	if err == nil {
		err = os.WriteFile("lockplugin-stranger", text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	const (
		command = `redis-server --port {port} --dir {dir} --save ""`
		claims  = `{"forgets_data": true, "exceptions": [
			{"all": ["data-lost"], "rules": ["double grant", "token"], "why": "it forgets"}]}`
	)
	if err := os.WriteFile("claims.json", []byte(claims), 0o600); err != nil {
		t.Fatal(err)
	}
	// If this store loses its data, the counter of its tokens starts again.
	base := []string{"faults", "--backends", "stranger", "--plugin-dir", dir, "--config", "stranger.bug=token", "--runs", "1", "--server", command}
	ends(t, exitUnsafe, "restart-wiped  stranger  broken", append(base, "--faults", "restart-wiped", "-o", "bare")...)
	ends(t, exitOK, "broken as documented|it forgets|restart: its claims say that it keeps no data|--server='redis-server --port {port}",
		append(base, "--faults", "restart-wiped,restart", "--claims", "claims.json", "-o", "claimed")...)
	ends(t, exitUnsafe, "broken", "check", "bare")
	ends(t, exitOK, "broken as documented", "check", "claimed")
	ends(t, exitOK, "takeover|server-restart", "run", "--backends", "stranger", "--plugin-dir", dir, "--quick", "--runs", "1", "--scenarios", "takeover",
		"--modes", "partition,server-restart", "--ttl", "1s", "--server", "stranger="+command+" --appendonly yes --appendfsync always", "--config", "stranger.address=localhost:{port}", "-o", "run")
}

// Mistakes in flags must be reported before anything starts.
func TestStrangerIsRefused(t *testing.T) {
	dir := plugins(t)
	lost := filepath.Join(t.TempDir(), "claims.json")
	for _, tt := range []struct {
		wants string
		args  []string
	}{
		{"lockbench starts servers for redis without being told how", []string{"faults", "--backends", "redis", "--server", "x {port}"}},
		{"has no {port}|each on a free port", []string{"conform", "redis", "--server", "x"}},
		{"does not say for which backend", []string{"run", "--server", "x {port}"}},
		{"redis has --server and --target", []string{"run", "--backends", "redis", "--server", "x {port}", "--target", "redis=127.0.0.1:1"}},
		{"two commands for a", []string{"run", "--server", "a=x {port}", "--server", "a=y {port}"}},
		{"no --server a=COMMAND starts", []string{"faults", "--claims", "a=" + lost}},
		{"claims.json: no such file", []string{"faults", "--server", "a=x {port}", "--claims", "a=" + lost}},
		{`no backend "a"`, []string{"faults", "--server", "a=x {port}"}},
	} {
		ends(t, exitUsage, tt.wants, append(tt.args, "--plugin-dir", dir)...)
	}
}
