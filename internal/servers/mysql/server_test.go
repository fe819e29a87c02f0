package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/servers"
)

func TestMariaDBSaysWhyItEnds(t *testing.T) {
	_, err := Start(t.Context(), &Options{Args: []string{"--no-such-option"}})
	if errors.Is(err, servers.ErrNotInstalled) {
		servers.Missing(t, "mysql", err)
	}
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Error(err)
	}
}

// TestFence checks that an UPDATE with the SQL clauses of package fence is refused as stale if a
// previous UPDATE had a higher token.
func TestFence(t *testing.T) {
	server, err := Start(t.Context(), nil)
	servers.Keep(t, "mysql", server, err)
	db, err := Dial(driver.Config{"address": At(server.Addr())})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = servers.Exec(t.Context(), db, "CREATE TABLE things (name VARCHAR(20) PRIMARY KEY, writes BIGINT NOT NULL DEFAULT 0, lock_token BIGINT UNSIGNED NOT NULL DEFAULT 0)",
		"INSERT INTO things (name) VALUES ('a')")
	if err != nil {
		t.Fatal(err)
	}
	query := "UPDATE things SET writes = writes + 1, " + fence.Set("lock_token") + " WHERE name = 'a' AND " + fence.Where("lock_token")
	for _, step := range []struct {
		token uint64
		stale bool
	}{{9, false}, {10, false}, {9, true}, {1<<64 - 1, false}, {1<<64 - 2, true}, {1<<64 - 1, false}} {
		if err := fence.Exec(t.Context(), db, "a", step.token, query, step.token, step.token); errors.Is(err, fence.ErrStale) != step.stale || err != nil && !step.stale {
			t.Errorf("token %d: %v", step.token, err)
		}
	}
}
