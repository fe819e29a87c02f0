package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// everything calls each operation of the backend b once.
func everything(ctx context.Context, b *Backend) map[string]error {
	r := lease("a", "o1")
	held := r
	held.Token = 1
	errs := map[string]error{"check": b.Check(ctx), "renew": b.Renew(ctx, held), "release": b.Release(ctx, held),
		"withdraw": b.Withdraw(ctx, r.Name, r.Owner), "proclaim": b.Proclaim(ctx, held), "wait": backendtest.Err(b.Wait(ctx, r, time.Second)),
		"break": b.Break(ctx, "a", 1), "observe": b.Observe(ctx, "a", func(driver.Holder) {}),
		"list": b.List(ctx, "", func(driver.Holder) bool { return true })}
	_, errs["acquire"] = b.TryAcquire(ctx, r)
	_, errs["inspect"] = b.Inspect(ctx, "a")
	errs["batch"] = b.Batch(ctx, []driver.Op{{Kind: driver.OpAcquire, Request: r}})[0].Err
	return errs
}

func TestServerDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	b := connect(t, Options{Address: []string{"redis://u:s3cret@" + addr}})
	began := time.Now()
	for op, err := range everything(t.Context(), b) {
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%s: %v", op, err)
		}
		if err != nil && (!strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	if p := b.Properties(); p.Durability != "unknown" || p.Server != "" {
		t.Errorf("properties of a server that is down: %+v", p)
	}
}

func TestRefusals(t *testing.T) {
	master := start(t, nil)
	_, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	locked := start(t, &redisserver.Options{Password: "s3cret"})
	user := func(rights string) *servers.Server {
		return start(t, &redisserver.Options{Lines: []string{"user default off", "user app on >s3cret ~lock:* &lock:* " + rights}})
	}
	for name, c := range map[string]struct {
		opts Options
		says string
	}{
		"an evicting server": {at(start(t, &redisserver.Options{Lines: []string{"maxmemory 50mb", "maxmemory-policy allkeys-lru"}})), "allkeys-lru"},
		"a replica":          {at(start(t, &redisserver.Options{Lines: []string{"replicaof 127.0.0.1 " + port}})), "read-only replica of 127.0.0.1:" + port},
		"no password":        {at(locked), "set username and password"},
		"a wrong password":   {Options{Address: []string{locked.Addr()}, Connect: Connect{Password: "s3cret-not"}}, "wrong username or password"},
		"a database too far": {Options{Address: []string{master.Addr()}, DB: 99}, "DB index"},
		"no scripts": {Options{Address: []string{user("+@all -@scripting").Addr()}, Prefix: "lock:",
			Connect: Connect{Username: "app", Password: "s3cret"}}, "+@scripting"},
		"other keys": {Options{Address: []string{user("+@all").Addr()}, Prefix: "other:",
			Connect: Connect{Username: "app", Password: "s3cret"}}, "of the prefix"},
	} {
		b := connect(t, c.opts)
		_, acquireErr := b.TryAcquire(t.Context(), lease("a", "o1"))
		for op, err := range map[string]error{"check": b.Check(t.Context()), "acquire": acquireErr} {
			if !errors.Is(err, driver.ErrDenied) {
				t.Errorf("%s: %s: %v", name, op, err)
				continue
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %s: %q does not say %q", name, op, err, c.says)
			}
		}
	}
}

// leastRights is a line that makes a user with only the rights that docs/backends.md asks for.
const leastRights = "user app on >s3cret ~lock:* &lock:* -@all +@read +@write +@scripting +@pubsub +@connection +time +info +select +wait +cluster|slots"

func TestLeastRightsInACluster(t *testing.T) {
	_, o := startCluster(t, 3, leastRights)
	o.Username, o.Password, o.Prefix = "app", "s3cret", "lock:"
	b := connect(t, o)
	must(t, b.Check(t.Context()))
	must(t, b.Release(t.Context(), acquire(t, b, lease("a", "o1"))))
}

func TestLeastRights(t *testing.T) {
	s := start(t, &redisserver.Options{Lines: []string{"user default off", leastRights}})
	o := Options{Address: []string{"redis://app:s3cret@" + s.Addr()}, Prefix: "lock:"}
	b := connect(t, o)
	must(t, b.Check(t.Context()))
	holder := acquire(t, b, lease("a", "o1"))
	turn := queue(t, connect(t, o), lease("a", "o2"))
	must(t, b.Release(t.Context(), holder))
	next := receive(t, turn, "the waiter")
	must(t, b.Break(t.Context(), "a", next.Token))
	must(t, b.List(t.Context(), "", func(driver.Holder) bool { return true }))
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.Observe(ctx, "a", func(driver.Holder) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("observe: %v", err)
	}
	// This user may not run CONFIG, as on a managed server. Durability must still be known.
	if got := b.Properties().Durability; got != "no appendonly" {
		t.Errorf("durability %q", got)
	}
}

func TestPropertiesFromServer(t *testing.T) {
	for fsync, want := range map[redisserver.Fsync]string{
		redisserver.FsyncNone: "no appendonly", redisserver.FsyncEverySec: "appendfsync everysec", redisserver.FsyncAlways: "appendfsync always",
	} {
		b := connect(t, at(start(t, &redisserver.Options{AppendFsync: fsync})))
		acquire(t, b, lease("a", "o1")) // makes a connection, which is enough for Properties
		if p := b.Properties(); p.Durability != want || !strings.HasPrefix(p.Server, "Redis ") && !strings.HasPrefix(p.Server, "Valkey ") {
			t.Errorf("fsync %s: durability %q, server %q", fsync, p.Durability, p.Server)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	start(t, &redisserver.Options{Lines: []string{fmt.Sprintf("unixsocket %q", path)}})
	b := connect(t, Options{Address: []string{"unix://" + path + "?db=2"}})
	must(t, b.Check(t.Context()))
	acquire(t, b, lease("a", "o1"))
	gone := connect(t, Options{Address: []string{"unix:///does/not/exist"}})
	if err := gone.Check(t.Context()); !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("no such socket: %v", err)
	}
}

// A lease can be renewed after the server is restarted, and after the server has lost the scripts.
func TestRestart(t *testing.T) {
	s := start(t, &redisserver.Options{AppendFsync: redisserver.FsyncAlways})
	b := connect(t, at(s))
	r := acquire(t, b, lease("a", "o1"))
	must(t, s.Stop())
	if err := b.Renew(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("renew while down: %v", err)
	}
	must(t, s.Start(t.Context(), true))
	must(t, b.Renew(t.Context(), r))
	must(t, plain(t, s).ScriptFlush(t.Context()).Err())
	must(t, b.Renew(t.Context(), r))
}

func TestCancelledCallReturns(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	must(t, b.Check(t.Context()))
	must(t, s.Freeze())
	t.Cleanup(func() { _ = s.Resume() })
	for op, f := range map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := b.TryAcquire(ctx, lease("a", "o1")); return err },
		"check":   b.Check,
		"inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "a"); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(20*time.Millisecond, cancel)
		err := f(ctx)
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%s: %v", op, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v to return", op, took)
		}
		if err := f(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a dead context: %v", op, err)
		}
	}
}

func TestClose(t *testing.T) {
	s := start(t, nil)
	running := goleak.IgnoreCurrent()
	b, err := Open(&Options{Address: []string{s.Addr()}})
	must(t, err)
	acquire(t, b, lease("a", "o1"))
	waited := make(chan error, 2)
	go func() { waited <- backendtest.Err(b.Wait(t.Context(), lease("a", "o2"), time.Minute)) }()
	go func() { waited <- b.Watch(t.Context(), func(driver.Notice) {}) }()
	eventually(t, "in the queue", func() bool { return waiters(t, b, "a") == 1 })
	must(t, b.Close(t.Context()))
	<-waited
	<-waited
	must(t, b.Close(t.Context()))
	for op, err := range everything(t.Context(), b) {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after close: %v", op, err)
		}
	}
	goleak.VerifyNone(t, running)
}

func TestCloseWhileFrozen(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	must(t, b.Check(t.Context()))
	must(t, s.Freeze())
	t.Cleanup(func() { _ = s.Resume() })
	sent := make(chan error, 2)
	go func() { _, err := b.TryAcquire(t.Context(), lease("a", "o1")); sent <- err }()
	go func() { sent <- b.Watch(t.Context(), func(driver.Notice) {}) }() // Watch gets no answer either
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = b.Close(ctx)
	if took := time.Since(began); took > time.Second {
		t.Errorf("close took %v", took)
	}
	for range cap(sent) {
		if err := <-sent; err == nil {
			t.Error("an answer of a frozen server")
		}
	}
}
