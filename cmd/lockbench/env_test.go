package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// TestKeptServers starts servers with "env up", measures on them, and ends them with "env down".
func TestKeptServers(t *testing.T) {
	redisServer(t, nil) // skips without a Redis server
	dir, tmp := plugins(t), t.TempDir()
	binary := plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench")
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", tmp)
	state := filepath.Join(t.TempDir(), "env.json")
	t.Setenv("LOCKBENCH_STATE", state)
	command := func(args ...string) (string, error) {
		out, err := exec.Command(binary, args...).CombinedOutput()
		return string(out), err
	}
	up := func() string {
		out, err := command("env", "up", "--backends", "redis", "--plugin-dir", dir)
		if err != nil || !strings.Contains(out, "redis     127.0.0.1:") {
			t.Fatalf("env up: %v, %q", err, out)
		}
		return out
	}
	defer func() { _, _ = command("env", "down") }() // cleans up if the test has failed
	shown := up()
	if _, out, _ := lockbench(t, "env", "status"); out != shown {
		t.Errorf("env status says %q, env up has said %q", out, shown)
	}
	ends(t, exitUsage, `"cloud"`, "env", "up", "--env", "cloud")
	out, err := command("env", "up", "--plugin-dir", dir)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(out, "up already") {
		t.Errorf("a second env up: %v, %q", err, out)
	}
	ends(t, exitOK, "redis uses the server that lockbench env up keeps", "run", "--quick", "--runs", "1", "--clients", "1", "--scenarios", "acquire", "--backends", "redis", "-o", "out", "--plugin-dir", dir)
	if m := manifest(t, "out"); m.Plan.Env != bench.EnvLocal || !slices.ContainsFunc(m.Notes, func(note string) bool { return strings.Contains(note, "env up keeps") }) {
		t.Errorf("%+v", m)
	}
	ends(t, exitOK, "", "env", "down")
	gone := func() bool {
		entries, err := os.ReadDir(tmp)
		return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "lockbench-env-") })
	}
	if !gone() {
		t.Error("env down has returned, and servers are left")
	}

	// If the process that keeps the servers is killed, the servers must end, too.
	up()
	text, err := os.ReadFile(state)
	var kept struct{ Pid int }
	if err := errors.Join(err, json.Unmarshal(text, &kept)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(kept.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the servers are gone", gone)
	if _, out, _ := lockbench(t, "env", "status"); !strings.Contains(out, "no servers are kept") {
		t.Errorf("status afterwards: %q", out)
	}
	up()
}

// If docker is installed, docker compose must accept the file compose.yaml.
func TestComposeFile(t *testing.T) {
	file, err := filepath.Abs("../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile(`image: \$\{LOCKBENCH_(\w+)_IMAGE:-(\S+):(v?\d+\.\d+(?:\.\d+)?)\}`).FindAllSubmatch(text, -1)
	if len(images) != 4 || bytes.Count(text, []byte("image: ")) != 4 {
		t.Errorf("images: %q, want four, pinned and each with its variable", images)
	}
	ports := regexp.MustCompile(`ports: \["(.*)"\]`).FindAllSubmatch(text, -1)
	for _, p := range ports {
		if !regexp.MustCompile(`^127\.0\.0\.1:\$\{LOCKBENCH_\w+_PORT:-\d+\}:\d+$`).Match(p[1]) {
			t.Errorf("port %s is not a variable one on the loopback interface", p[1])
		}
	}
	if len(ports) != 11 {
		t.Errorf("%d ports, want eleven", len(ports))
	}
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Skip("docker compose is not installed: whether it takes the file is not checked")
	}
	if out, err := exec.Command("docker", "compose", "-f", file, "config", "--quiet").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// If docker compose is missing, the error names the package to install. lockbench then measures no
// backend, not even a backend that needs no server.
func TestNoDocker(t *testing.T) {
	dir := plugins(t)
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "docker"), []byte("#!/bin/sh\necho unknown command >&2; exit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	out := filepath.Join(t.TempDir(), "out")
	code, _, errs := lockbench(t, "run", "--env", "compose", "--plugin-dir", dir, "-o", out)
	if code != exitEnvironment || strings.Count(errs, "\n") != 2 || !strings.Contains(errs, "docker compose is not installed") || !strings.Contains(errs, "apt-get install docker.io docker-compose-v2") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("there is a result folder")
	}
}
