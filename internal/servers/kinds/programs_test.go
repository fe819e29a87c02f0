package kinds

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/redis"
)

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	newest := filepath.Join(dir, "newest")
	for name, script := range map[string]string{
		"redis-server": "#!/bin/sh\necho Redis server v=7.0.15 sha=00000000:0\n",
		"newest":       "#!/bin/sh\necho Valkey server v=9.1.2 sha=00000000:0\n",
		"docker":       "#!/bin/sh\n[ $1 = compose ] && exit 1\necho Docker version 27.1.2+b1, build x\n",
		"mariadbd":     "#!/bin/sh\nexit 3\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/bin")
	t.Setenv("LOCKBENCH_MYSQLD", filepath.Join(dir, "mariadbd"))
	found := map[string]servers.Program{}
	for _, p := range Programs(t.Context()) {
		found[p.For+" "+p.Name] = p
	}
	for what, want := range map[string]struct {
		version   string
		installed bool
		works     bool
	}{
		"redis, redlock redis-server":  {"7.0.15", true, true},
		"--env compose docker":         {"27.1.2+b1", true, true},
		"--env compose docker compose": {"", false, false},
		"mysql mysqld":                 {"", true, false},
	} {
		p, ok := found[what]
		if !ok || p.Version != want.version || errors.Is(p.Err, servers.ErrNotInstalled) == want.installed || (p.Err == nil) != want.works {
			t.Errorf("%s: %+v", what, p)
		}
	}
	t.Setenv("LOCKBENCH_REDIS_SERVER", newest)
	if p := redis.Program(); p.Path != newest {
		t.Errorf("LOCKBENCH_REDIS_SERVER=%s: %+v", newest, p)
	}
}
