package examples_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestHostsHaveNoStoreClient checks that four examples contain no client library of any store. The
// examples are programs of another module that use core and core/plugin.
func TestHostsHaveNoStoreClient(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./scheduler", "./leadertask", "./coupons", "./fencedfile").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	var core bool
	for pkg := range strings.Lines(string(out)) {
		pkg = strings.TrimSpace(pkg)
		core = core || pkg == "github.com/lockbench/lockbench/core/plugin"
		for _, client := range []string{
			"github.com/redis/", "github.com/go-sql-driver/", "go.etcd.io/", "github.com/jackc/",
			"github.com/lockbench/lockbench/plugins/redis", "github.com/lockbench/lockbench/plugins/redlock",
			"github.com/lockbench/lockbench/plugins/mysql", "github.com/lockbench/lockbench/plugins/postgres", "github.com/lockbench/lockbench/plugins/etcd",
			"github.com/lockbench/lockbench/bench",
		} {
			if strings.HasPrefix(pkg, client) {
				t.Errorf("the examples' builds contain %s", pkg)
			}
		}
	}
	if !core {
		t.Error("the examples do not use core/plugin, so this proves nothing")
	}
}
