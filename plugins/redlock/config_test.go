package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func TestBadConfiguration(t *testing.T) {
	three := "a:1,b:2,c:3"
	for _, c := range []struct {
		cfg  driver.Config
		want string
	}{
		{driver.Config{}, `needs "address"`},
		{driver.Config{"address": "a:1"}, "lists 1 nodes; 3 to 9 are needed"},
		{driver.Config{"address": "a:1,b:2,c:3,d:4"}, "lists 4 nodes; an even number survives no more losses than 3 would"},
		{driver.Config{"address": "a:1,b:2,a:1"}, "a:1 is listed twice"},
		{driver.Config{"address": "a,b:2,redis://a:6379"}, "a:6379 is listed twice"},
		{driver.Config{"address": "a:1,b:2,c:x"}, "node 3 of 3"},
		{driver.Config{"address": three, "node_timeout": "4s"}, "max_ttl 1m0s is less than 20 times node_timeout 4s"},
		{driver.Config{"address": three, "max_ttl": "25h"}, "max_ttl 25h0m0s is more than 24h"},
		{driver.Config{"address": three, "quarantine": "1"}, "quarantine is neither on nor off"},
		{driver.Config{"address": three, "prefix": "{x}"}, "braces"},
		{driver.Config{"address": three, "node_timeout": "1us"}, "less than 1ms"},
		{driver.Config{"address": three, "node_timout": "1ms"}, "did you mean node_timeout?"},
		{driver.Config{"address": three, "username": "u"}, "password"},
		{driver.Config{"address": three, "tls_ca_file": "/nonexistent"}, "tls_ca_file"},
	} {
		cfg, err := Spec.CheckConfig(c.cfg)
		if err == nil {
			_, err = open(optionsOf(cfg, nil))
		}
		if !errors.Is(err, driver.ErrConfig) || !contains(err, c.want) {
			t.Errorf("%v: got %v, want %q", c.cfg, err, c.want)
		}
	}
}

func checked(t *testing.T, cfg driver.Config, sentinel error, want ...string) {
	t.Helper()
	b := connect(t, cfg)
	began := time.Now()
	err := b.Check(t.Context())
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the error took %v", took)
	}
	if !errors.Is(err, sentinel) {
		t.Errorf("got %v, want %v", err, sentinel)
	}
	for _, text := range want {
		if !contains(err, text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	if secret := cfg["password"]; secret != "" && contains(err, secret) {
		t.Errorf("the error shows the password: %v", err)
	}
}

func TestRefusedByNodes(t *testing.T) {
	nodes := start(t, 2, nil)
	initialised := func(s ...*servers.Server) servers.Nodes { return append(append(servers.Nodes{}, nodes...), s...) }
	t.Run("wrong password on one node", func(t *testing.T) {
		own := start(t, 2, &redisserver.Options{Password: "right-secret"})
		other := start(t, 1, &redisserver.Options{Password: "other-secret"})
		all := append(own, other...)
		checked(t, configOf(all, driver.Config{"password": "right-secret"}), driver.ErrDenied, other[0].Addr(), "wrong username or password")
	})
	t.Run("no password given", func(t *testing.T) {
		own := start(t, 1, &redisserver.Options{Password: "right-secret"})
		checked(t, configOf(initialised(own...), nil), driver.ErrDenied, own[0].Addr(), "password")
	})
	t.Run("eviction", func(t *testing.T) {
		own := start(t, 1, &redisserver.Options{Lines: []string{"maxmemory 100mb", "maxmemory-policy allkeys-lru"}})
		checked(t, configOf(initialised(own...), nil), driver.ErrDenied, own[0].Addr(), "allkeys-lru")
	})
	t.Run("replica", func(t *testing.T) {
		host, port, err := net.SplitHostPort(nodes[0].Addr())
		must(t, err)
		own := start(t, 1, &redisserver.Options{Lines: []string{"replicaof " + host + " " + port}})
		checked(t, configOf(initialised(own...), nil), driver.ErrDenied, own[0].Addr(), "replica")
	})
	t.Run("another max_ttl", func(t *testing.T) {
		own := start(t, 1, nil)
		all := initialised(own...)
		must(t, initialise(t.Context(), configOf(all, nil)))
		checked(t, configOf(all, driver.Config{"max_ttl": "30s"}), driver.ErrDenied, "max_ttl is 30s here and 60000 ms where")
	})
	t.Run("nobody there", func(t *testing.T) {
		own := start(t, 3, nil)
		for _, s := range own {
			must(t, s.Stop())
		}
		checked(t, configOf(own, nil), driver.ErrUnavailable, "0 of 3 nodes vote", own[2].Addr(), "refused")
	})
	t.Run("black holes", func(t *testing.T) {
		own := start(t, 3, nil)
		for _, s := range own {
			must(t, s.Freeze())
		}
		checked(t, configOf(own, nil), driver.ErrUnavailable, "0 of 3 nodes vote", own[2].Addr())
	})
	t.Run("TLS to a plain port", func(t *testing.T) {
		own := start(t, 3, nil)
		checked(t, configOf(own, driver.Config{"tls_enabled": "true"}), driver.ErrUnavailable, "0 of 3 nodes vote")
	})
}

func TestInit(t *testing.T) {
	nodes := start(t, 3, nil)
	cfg := configOf(nodes, nil)
	must(t, initialise(t.Context(), cfg))
	must(t, initialise(t.Context(), cfg)) // a second init does no harm
	must(t, nodes[0].Stop())
	if err := initialise(t.Context(), cfg); !errors.Is(err, driver.ErrUnavailable) || !contains(err, nodes[0].Addr()) {
		t.Errorf("with a node stopped: %v", err)
	}
	must(t, nodes[0].Start(t.Context(), false))
	if err := initialise(t.Context(), cfg); !errors.Is(err, driver.ErrDenied) || !contains(err, "2 of 3 nodes vote already") {
		t.Errorf("with a node that has lost its data: %v", err)
	}
}

// The command init refuses to change the nodes' max_ttl, because a change would end every lease.
func TestInitWithAnotherTTL(t *testing.T) {
	nodes, b := cluster(t, nil)
	r := acquire(t, b, lease("a", "o"))
	err := initialise(t.Context(), configOf(nodes, driver.Config{"max_ttl": "30s"}))
	if !errors.Is(err, driver.ErrDenied) || !contains(err, "max_ttl of 60000 ms") {
		t.Errorf("init with another max_ttl: %v", err)
	}
	must(t, b.Renew(t.Context(), r))
}

// If two addresses lead to one server, Check returns an error, and the server has only one vote.
// Requests succeed if the votes are a majority of the addresses.
func TestTwinIsSetAside(t *testing.T) {
	nodes := start(t, 3, nil)
	must(t, initialise(t.Context(), configOf(nodes, nil)))
	_, port, err := net.SplitHostPort(nodes[0].Addr())
	must(t, err)
	b := connect(t, configOf(nodes[:2], driver.Config{"address": nodes[:2].Addr() + ",localhost:" + port}))
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) || !contains(err, "lead to one server") || !contains(err, "localhost:"+port) {
		t.Errorf("check: %v", err)
	}
	r := acquire(t, b, lease("a", "o"))
	must(t, b.Renew(t.Context(), r))
	must(t, nodes[1].Stop())
	if err := b.Renew(t.Context(), r); err == nil {
		t.Error("one server has voted twice")
	}
}

func TestClosed(t *testing.T) {
	_, b := cluster(t, nil)
	r := acquire(t, b, lease("a", "o"))
	must(t, b.Close(t.Context()))
	must(t, b.Close(t.Context()))
	_, err := b.TryAcquire(t.Context(), lease("b", "o"))
	for _, err := range []error{err, b.Renew(t.Context(), r), b.Release(t.Context(), r), b.Check(t.Context()), backendtest.Err(b.Wait(t.Context(), r, time.Second))} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// Close ends every goroutine of a backend, even if a node is frozen or stopped.
func TestNoGoroutineLeft(t *testing.T) {
	nodes := start(t, 5, nil)
	must(t, initialise(t.Context(), configOf(nodes, nil)))
	before := goleak.IgnoreCurrent()
	cfg, err := Spec.CheckConfig(configOf(nodes, nil))
	must(t, err)
	for i, harm := range []func(*servers.Server) error{nil, (*servers.Server).Freeze, (*servers.Server).Stop} {
		// Each round uses a new lock, because a lock stays reserved for a while after a waiter gives up.
		name := fmt.Sprintf("a%d", i)
		b, err := open(optionsOf(cfg, slog.New(slog.DiscardHandler)))
		must(t, err)
		must(t, b.Check(t.Context()))
		r := acquire(t, b, lease(name, "o"))
		if harm != nil {
			must(t, harm(nodes[4]))
		}
		waiting, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _, _ = b.Wait(waiting, lease(name, "o2"), time.Minute) })
		must(t, b.Renew(t.Context(), r))
		must(t, b.Release(t.Context(), r))
		cancel()
		work.Wait()
		began := time.Now()
		must(t, b.Close(t.Context()))
		// Close may wait up to 2 s (request_timeout) for a request to a queue of waiters.
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("close took %v", took)
		}
		// If a node refuses connections, go-redis tries again once a second. Only the next try notices
		// that the client is closed.
		for deadline := time.Now().Add(3 * time.Second); goleak.Find(before) != nil && time.Now().Before(deadline); {
		}
		goleak.VerifyNone(t, before)
	}
}
