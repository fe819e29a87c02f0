package etcd

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// servers are the versions that tests run against: the one built from
// tools/etcd, and the one on the PATH if that is another.
func servers(t *testing.T, run func(t *testing.T, binary string)) {
	t.Run("default", func(t *testing.T) { run(t, "") })
	path, err := exec.LookPath("etcd")
	if err != nil {
		return
	}
	t.Run("PATH", func(t *testing.T) { run(t, path) })
}

// start starts a server of the test's own.
func start(t testing.TB, opts *env.EtcdOptions) *env.Server {
	t.Helper()
	s, err := env.StartEtcd(t.Context(), opts)
	if err != nil {
		env.Missing(t, "etcd", err)
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
		ctx, cancel := context.WithTimeout(context.Background(), testPatience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func on(s *env.Server) Options { return Options{Address: []string{s.Addr()}} }

// plain returns a client of its own, as an operator has it.
func plain(t testing.TB, s *env.Server) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func lock(name, owner string) driver.Request {
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

func isNotHeld(t testing.TB, err error) driver.Holder {
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

// testPatience bounds what a test waits for on a machine that is busy.
const testPatience = 30 * time.Second

// eventually polls until ok or a deadline.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testPatience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", testPatience, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Millisecond):
		}
	}
}
