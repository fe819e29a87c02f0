package redis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
)

func TestRedisNodes(t *testing.T) {
	nodes, err := StartNodes(t.Context(), 3, nil)
	servers.Keep(t, "redis", nodes, err)
	addrs := strings.Split(nodes.Addr(), ",")
	if len(addrs) != 3 {
		t.Fatal(nodes.Addr())
	}
	for i, s := range nodes {
		if s.Addr() != addrs[i] || ask(t, s, "PING")[0] != "+PONG" {
			t.Errorf("node %d at %s, listed as %s", i, s.Addr(), addrs[i])
		}
	}

	binary := filepath.Join(t.TempDir(), "plugin")
	for script, want := range map[string]string{
		`[ "$1" = init ] && grep -q "^address=` + nodes.Addr() + `$" && exit 0; exit 1`: "",
		"echo no nodes >&2; exit 1": "no nodes",
	} {
		if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		err := servers.Init(t.Context(), binary, "prefix=x", "address="+nodes.Addr())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("init with a plugin that does %q: %v", script, err)
		}
	}

	if err := nodes.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		if s.Pid() != 0 {
			t.Errorf("%s runs after Close", s.Addr())
		}
	}
	if _, err := StartNodes(t.Context(), 2, &Options{AppendFsync: "sometimes"}); err == nil {
		t.Error("started with a bad option")
	}
}
