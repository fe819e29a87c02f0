package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// start starts a server of the test's own.
func start(t testing.TB, opts *env.RedisOptions) *env.Server {
	t.Helper()
	s, err := env.StartRedis(t.Context(), opts)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return s
}

// connect opens a backend and closes it when the test ends.
func connect(t testing.TB, o Options) *Backend {
	t.Helper()
	b, err := Open(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// at are options for one server.
func at(s *env.Server) Options { return Options{Address: []string{s.Addr()}} }

// plain returns a client of its own, as another application has it.
func plain(t testing.TB, s *env.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func lease(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, Label: "host-1:77", TTL: 10 * time.Second}
}

// acquire acquires and returns the request with its token.
func acquire(t testing.TB, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	token, err := b.TryAcquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %q by %s: %v", r.Name, r.Owner, err)
	}
	if token == 0 {
		t.Fatalf("acquire %q by %s: token 0", r.Name, r.Owner)
	}
	r.Token = token
	return r
}

func held(t testing.TB, err error) driver.Holder {
	t.Helper()
	var e *driver.HeldError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a HeldError", err)
	}
	return e.Holder
}

func notHeld(t testing.TB, err error) driver.Holder {
	t.Helper()
	var e *driver.NotHeldError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a NotHeldError", err)
	}
	return e.Holder
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds what a test waits for on a machine that is busy.
const patience = 30 * time.Second

// least wants one of several tries to take no longer than limit: a busy machine
// spoils some of them, but not all.
func least(t testing.TB, limit time.Duration, what string, try func(n int) time.Duration) {
	t.Helper()
	const tries = 5
	best := try(0)
	for n := 1; n < tries && best > limit; n++ {
		best = min(best, try(n))
	}
	if best > limit {
		t.Errorf("%v at best %s, want no more than %v", best, what, limit)
	}
}

// eventually polls until ok or a deadline.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Millisecond):
		}
	}
}
