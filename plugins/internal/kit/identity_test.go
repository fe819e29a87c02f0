package kit_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// An Identity refuses other servers while its current server serves, and only then.
func TestIdentity(t *testing.T) {
	var logs bytes.Buffer
	i := kit.Identity{Addr: "db:1", Log: slog.New(slog.NewTextHandler(&logs, nil))}
	serving := true
	serves := func() bool { return serving }
	for _, server := range []string{"one", "", "one"} {
		if err := i.Admit(server, nil); err != nil {
			t.Fatalf("admit %q: %v", server, err)
		}
	}
	for range 2 {
		err := i.Admit("two", serves)
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent) ||
			!strings.Contains(err.Error(), "db:1 leads to two servers, one and two") {
			t.Errorf("a second server while the first one serves: %v", err)
		}
	}
	if n := strings.Count(logs.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, &logs)
	}
	if i.Recent() == nil || i.Current() != "one" {
		t.Errorf("in use is %q, and the check says %v", i.Current(), i.Recent())
	}
	serving = false
	if err := i.Admit("two", serves); err != nil || i.Recent() != nil || i.Current() != "two" {
		t.Errorf("a second server after the first one: %v; in use is %q, and the check says %v", err, i.Current(), i.Recent())
	}
}

// Admit accepts only one of two servers, even if connections to both are opened at the same time.
func TestIdentityAtOnce(t *testing.T) {
	i := kit.Identity{Log: slog.New(slog.DiscardHandler)}
	var refused sync.Map
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			server := []string{"one", "two"}[n%2]
			if i.Admit(server, func() bool { return true }) != nil {
				refused.Store(server, true)
			}
		})
	}
	all.Wait()
	if _, yes := refused.Load(i.Current()); yes {
		t.Errorf("the server in use, %s, was refused", i.Current())
	}
	other := map[string]string{"one": "two", "two": "one"}[i.Current()]
	if _, yes := refused.Load(other); !yes {
		t.Errorf("both servers were admitted")
	}
}
