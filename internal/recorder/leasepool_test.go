package recorder

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/record"
)

// TestLeasePool: every lease that the store forgets is told of and taken again,
// with a higher token, and all are given back in the end.
func TestLeasePool(t *testing.T) {
	s, err := env.StartRedis(t.Context(), nil)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const count = 40
	p := start(t, s, 0, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.Keep("pool-", count, ttl))
	must(p.AwaitPool(ctx, count))
	store := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer store.Close()
	must(store.FlushAll(ctx).Err())
	must(p.Await(ctx, func(Seen) bool { return len(p.pool.Losses) > 0 }))
	must(p.AwaitPool(ctx, count))
	must(p.Release(ctx))

	c := p.TakePool()
	last := map[int32]record.Attempt{}
	for _, a := range c.Attempts {
		if a.Outcome != record.Granted { // asked for when all were given back
			continue
		}
		if a.Token <= last[a.Name].Token {
			t.Errorf("%+v comes after %+v", a, last[a.Name])
		}
		last[a.Name] = a
	}
	for _, a := range c.Attempts {
		if a.Outcome == record.Granted && (a.End == record.EndOpen || a.Ended < a.Answered) {
			t.Errorf("no end: %+v", a)
		}
	}
	if len(last) != count || c.Held != 0 || len(c.Losses) > count {
		t.Errorf("%d names, %d held, %d losses", len(last), c.Held, len(c.Losses))
	}
	for _, l := range c.Losses {
		if l.Cause == "" || l.At == 0 || l.Name < 0 || l.Name >= count {
			t.Errorf("%+v", l)
		}
	}
	if again := p.TakePool(); len(again.Attempts)+len(again.Losses) > 0 {
		t.Errorf("told twice: %+v", again)
	}
}

func TestUse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	s, err := env.StartRedis(t.Context(), nil)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	host, plugin, err := start(t, s, 0, t.TempDir()).Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if host.Goroutines == 0 || host.Heap == 0 || plugin.Goroutines != 0 {
		t.Errorf("%v; %v", host, plugin)
	}
	for _, u := range []Use{host, plugin} {
		if u.Resident < 1<<20 || u.Descriptors < 3 || u.Threads == 0 {
			t.Errorf("%+v", u)
		}
	}
}
