package endurance_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/plugins/memory"
)

const (
	// blockedName is the lock that nobody gets while something is blocked.
	blockedName = "blocked"
	// maxRise is by how much the p99 of the others may rise meanwhile.
	maxRise = 1.10
)

// obstacle is something slow that one request meets, or all requests on one
// of several ways.
type obstacle struct {
	client *core.Client
	sticks bool // who asks for the blocked lock waits until the obstacle goes
	// block puts it in the way and returns what takes it away.
	block func(t *testing.T) (unblock func())
}

// TestHeadOfLine: a request that is stuck holds up nobody else. The short test
// lets everybody go through many cycles before the obstacle goes; the long one
// compares their p99 with and without it.
func TestHeadOfLine(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(t *testing.T) obstacle
	}{
		{"mysql with a row locked by a foreign transaction", foreignRow},
		{"redlock with a frozen node", frozenNode},
		{"a backend with a call that does not end", endlessCall},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.start(t)
			passers(t, o.client, count(2, 100)) // what is opened on first use is opened now
			var with, without []float64
			for range count(1, 5) {
				without = append(without, tailOf(passers(t, o.client, count(6, 1000))))
				with = append(with, tailOf(passing(t, o, count(6, 1000))))
			}
			slices.Sort(with)
			slices.Sort(without)
			rise := with[len(with)/2] / without[len(without)/2]
			t.Logf("median p99 of an acquire: %v, and %v beside the obstacle, %.2f times that", time.Duration(without[len(without)/2]), time.Duration(with[len(with)/2]), rise)
			if os.Getenv("LOCKBENCH_LONG") != "" && rise > maxRise {
				t.Errorf("the p99 of the others is %.2f times what it was, more than %v", rise, maxRise)
			}
		})
	}
}

// passing are passers while somebody asks for the blocked lock in vain.
func passing(t *testing.T, o obstacle, each int) []time.Duration {
	unblock := o.block(t)
	ctx, stop := context.WithCancel(t.Context())
	stuck := make(chan error, 1)
	go func() {
		lock, err := o.client.Lock(blockedName, nil)
		if err == nil {
			err = once(ctx, lock)
		}
		stuck <- err
	}()
	took := passers(t, o.client, each)
	if o.sticks && len(stuck) > 0 {
		t.Errorf("nobody was blocked: the acquire of %q ended with %v", blockedName, <-stuck)
		stuck <- nil
	}
	stop()
	unblock()
	<-stuck // granted, where the obstacle is not about that lock, or given up
	return took
}

// passers go through so many cycles each, on locks of their own, and return how
// long their acquires took.
func passers(t *testing.T, client *core.Client, each int) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	took := make([][]time.Duration, cyclers)
	var work sync.WaitGroup
	for i := range cyclers {
		work.Go(func() {
			lock, err := client.Lock(fmt.Sprint("passer ", i), nil)
			for n := 0; n < each && err == nil; n++ {
				began := time.Now()
				var lease *core.Lease
				if lease, err = lock.Acquire(ctx); err == nil {
					took[i] = append(took[i], time.Since(began))
					err = lease.Release(ctx)
				}
			}
			if err != nil {
				t.Errorf("passer %d after %d of %d cycles: %v", i, len(took[i]), each, err)
			}
		})
	}
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return slices.Concat(took...)
}

// tailOf is the p99 in nanoseconds.
func tailOf(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)*99/100])
}

func foreignRow(t *testing.T) obstacle {
	cfg := startMariaDB(t)
	client := open(t, "mysql", cfg)
	if err := acquire(t, client, blockedName, 10*time.Second).Release(t.Context()); err != nil { // the row is there
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", cfg["address"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return obstacle{client, true, func(t *testing.T) func() {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var name string
		if err := tx.QueryRow("SELECT name FROM `"+cfg["prefix"]+"locks` WHERE name = ? FOR UPDATE", blockedName).Scan(&name); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
	}}
}

func frozenNode(t *testing.T) obstacle {
	nodes, err := env.StartRedisNodes(t.Context(), 5, nil)
	env.Keep(t, "redis", nodes, err)
	if err := nodes.Init(t.Context(), plugintest.Build(t, "../plugins/redlock/lockplugin-redlock")); err != nil {
		t.Fatal(err)
	}
	client := open(t, "redlock", driver.Config{"address": nodes.Addr(), "prefix": "endurance:", "node_timeout": "200ms"})
	return obstacle{client, false, func(t *testing.T) func() {
		if err := nodes[2].Freeze(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := nodes[2].Resume(); err != nil {
				t.Error(err)
			}
		}
	}}
}

// open opens the plugin's binary, to be closed at the end of the test.
func open(t *testing.T, name string, cfg driver.Config) *core.Client {
	binary := plugintest.Build(t, "../plugins/"+name+"/lockplugin-"+name)
	client := core.New(plugintest.Open(t, name, optionsOf(binary, cfg)), nil)
	t.Cleanup(func() { client.Close(context.WithoutCancel(t.Context())) })
	return client
}

// gated is a backend in which an acquire of one name does not end while its
// gate is shut.
type gated struct {
	driver.Backend
	mu   sync.Mutex
	gate chan struct{} // closed: open
}

func (g *gated) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	if r.Name == blockedName {
		g.mu.Lock()
		gate := g.gate
		g.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", driver.ErrNotSent, ctx.Err())
		}
	}
	return g.Backend.TryAcquire(ctx, r)
}

// Properties declares no capabilities, so that every request is a call of its own.
func (g *gated) Properties() driver.Properties {
	p := g.Backend.Properties()
	p.Capabilities = nil
	return p
}

func endlessCall(t *testing.T) obstacle {
	g := &gated{Backend: memory.NewStore().Open()}
	client := core.New(plugintest.Loopback(t, g), nil)
	return obstacle{client, true, func(*testing.T) func() {
		gate := make(chan struct{})
		g.mu.Lock()
		g.gate = gate
		g.mu.Unlock()
		return func() { close(gate) }
	}}
}
