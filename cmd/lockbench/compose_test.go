package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestComposeFile holds what can be read without docker; with it, also that
// compose takes the file.
func TestComposeFile(t *testing.T) {
	file, err := filepath.Abs("../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile(`image: \$\{LOCKBENCH_(\w+)_IMAGE:-(\S+):(v?\d+\.\d+\.\d+)\}`).FindAllSubmatch(text, -1)
	if len(images) != 3 || bytes.Count(text, []byte("image: ")) != 3 {
		t.Errorf("images: %q, want three, pinned and each with its variable", images)
	}
	ports := regexp.MustCompile(`ports: \["(.*)"\]`).FindAllSubmatch(text, -1)
	for _, p := range ports {
		if !regexp.MustCompile(`^127\.0\.0\.1:\$\{LOCKBENCH_\w+_PORT:-\d+\}:\d+$`).Match(p[1]) {
			t.Errorf("port %s is not a variable one on the loopback interface", p[1])
		}
	}
	if len(ports) != 10 {
		t.Errorf("%d ports, want ten", len(ports))
	}
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Skip("docker compose is not installed: whether it takes the file is not checked")
	}
	if out, err := exec.Command("docker", "compose", "-f", file, "config", "--quiet").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestNoDocker: an environment of containers needs docker compose, and names the
// package that has it here. No backend is measured or tried without it, the ones
// that need no server included.
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
