package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompose checks that services start on the ports in their addresses, and that Close removes
// the project's containers. A script replaces docker and records its arguments.
func TestCompose(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	script := `#!/bin/sh
echo "$* $LOCKBENCH_REDIS_PORT $LOCKBENCH_ETCD1_PORT $LOCKBENCH_REDIS_APPENDONLY" >> ` + asked + `
case $1 in ps) echo container ;; esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	c, err := NewCompose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	up := func(durable bool, services ...string) []string {
		t.Helper()
		all, err := c.Up(t.Context(), "x", services, durable)
		if err != nil || len(all) != len(services) {
			t.Fatalf("%d services, %v", len(all), err)
		}
		return all
	}
	redis, etcd := up(true, "redis")[0], up(false, "etcd1", "etcd2")[0]
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	port := func(at string) string { return strings.TrimPrefix(at, "127.0.0.1:") }
	project := "compose --project-name " + c.project + " --file " + c.file + " up --detach --wait --quiet-pull"
	for _, want := range []string{
		project + " redis " + port(redis) + "  yes\n", project + " etcd1 etcd2  " + port(etcd) + " \n",
		"rm --force --volumes container",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("docker was not asked for %q:\n%s", want, b)
		}
	}
}
