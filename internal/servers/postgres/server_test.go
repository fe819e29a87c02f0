package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

func TestServerSaysWhyItEnds(t *testing.T) {
	_, err := Start(t.Context(), &Options{Args: []string{"-c", "no_such_option=1"}})
	if errors.Is(err, servers.ErrNotInstalled) {
		servers.Missing(t, "postgres", err)
	}
	if err == nil || !strings.Contains(err.Error(), "no_such_option") {
		t.Error(err)
	}
}

// TestAllProcessesAreMeant checks that Stop and Freeze affect all processes of a server, including
// the processes for connections. Stop must keep committed data.
func TestAllProcessesAreMeant(t *testing.T) {
	s, err := Start(t.Context(), nil)
	servers.Keep(t, "postgres", s, err)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := Dial(t.Context(), driver.Config{"address": Address(s)})
	must(err)
	_, err = c.Exec(t.Context(), "CREATE TABLE kept (x int)")
	must(err)
	must(s.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx); err == nil {
		t.Error("a frozen server answers on a connection that there is")
	}
	must(s.Resume())
	must(s.Stop())
	must(s.Start(t.Context(), true))
	c, err = Dial(t.Context(), driver.Config{"address": Address(s)})
	must(err)
	defer c.Close(context.Background())
	_, err = c.Exec(t.Context(), "INSERT INTO kept VALUES (1)")
	must(err)
}

func TestLetIn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "clock")
	t.Setenv("TMPDIR", filepath.Dir(dir)+"/")
	err := errors.Join(os.WriteFile(file, nil, 0o600), letIn(&account{os.Getuid(), os.Getgid()}, dir, []string{"env", "CLOCK=" + file}))
	if s, statErr := os.Stat(dir); err != nil || statErr != nil || s.Mode().Perm() != 0o711 {
		t.Error(s, err, statErr)
	}
}
