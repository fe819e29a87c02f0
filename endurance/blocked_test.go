package endurance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/env"
)

// deaf is a logger and an OnEvent that block until they are opened, and then
// count.
type deaf struct {
	open                        chan struct{}
	told, dropped, logged, lost *atomic.Uint64
}

func newDeaf() deaf {
	return deaf{
		open: make(chan struct{}),
		told: new(atomic.Uint64), dropped: new(atomic.Uint64), logged: new(atomic.Uint64), lost: new(atomic.Uint64),
	}
}

func (d deaf) on(ev core.Event) {
	<-d.open
	d.told.Add(1)
	d.dropped.Add(ev.Dropped)
	if ev.Kind == core.EventLost {
		d.lost.Add(1)
	}
}

func (d deaf) Enabled(context.Context, slog.Level) bool { return true }
func (d deaf) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d deaf) WithGroup(string) slog.Handler            { return d }
func (d deaf) Handle(_ context.Context, r slog.Record) error {
	<-d.open
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "dropped" {
			d.logged.Add(a.Value.Uint64())
		}
		return true
	})
	return nil
}

// TestBlockedCallbacks loads a host whose loggers and OnEvent block from the
// start. In the middle its plugin is killed, and at the end its server freezes:
// until then no lease may be lost, and then every one in time.
func TestBlockedCallbacks(t *testing.T) {
	const (
		callers, held = 64, 1000
		ttl           = 5 * time.Second
	)
	late, back := 250*time.Millisecond, ttl // on a machine that does other things
	if os.Getenv("LOCKBENCH_LONG") != "" {
		late, back = 20*time.Millisecond, time.Second
	}
	server, err := env.StartRedis(t.Context(), nil)
	keep(t, "redis", server, err)
	listen := newDeaf()
	binary := plugintest.Build(t, "../plugins/redis/lockplugin-redis")
	b, err := plugin.Open(t.Context(), "redis", &plugin.Options{
		Path: binary, Config: driver.Config{"address": server.Addr()}, Logger: slog.New(listen),
	})
	if err != nil {
		t.Fatal(err)
	}
	client := core.New(b, &core.Options{Logger: slog.New(listen), OnEvent: listen.on})
	defer client.Close(context.Background())
	open := sync.OnceFunc(func() { close(listen.open) })
	defer open()

	leases := make([]*core.Lease, held)
	for i := range leases {
		leases[i] = acquire(t, client, fmt.Sprint("held ", i), ttl)
	}
	load, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	var cycles atomic.Int64
	for i := range callers {
		work.Go(func() { churnOne(load, t, client, fmt.Sprint("cycled ", i), ttl, &cycles) })
	}
	half := time.Duration(count(4, 30)) * time.Second
	time.Sleep(half)
	took := killPlugin(t, client, b)
	time.Sleep(half)
	stop()
	work.Wait()
	for i, l := range leases {
		if !l.Valid() {
			t.Errorf("lease %d was lost: %v", i, l.Err())
		}
	}
	if took > back {
		t.Errorf("the plugin came back after %v, later than %v", took, back)
	}
	worst := outlive(t, server, leases)
	if worst > late {
		t.Errorf("Done closed %v after the deadline", worst)
	}
	open()
	eventually(t, "the end of every lease is told", func() bool { return listen.lost.Load() == held })
	acquire(t, client, "one more event", ttl)
	eventually(t, "the dropped events are told", func() bool { return listen.dropped.Load() > 0 && listen.logged.Load() > 0 })
	t.Logf("%d cycles; plugin back after %v; Done at most %v late; %d events told, %d dropped", cycles.Load(), took, worst, listen.told.Load(), listen.dropped.Load())
}

// churnOne acquires and releases one lock until ctx ends.
func churnOne(ctx context.Context, t *testing.T, client *core.Client, name string, ttl time.Duration, cycles *atomic.Int64) {
	lock, err := client.Lock(name, &core.LockOptions{TTL: ttl})
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		// The plugin dies under some: they are free at the end of the TTL.
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrNotHeld) {
			t.Error(err)
		}
		cycles.Add(1)
	}
}

// killPlugin returns how long it takes until another one answers.
func killPlugin(t *testing.T, client *core.Client, b driver.Backend) time.Duration {
	t.Helper()
	pid, _ := plugin.ProcessOf(b)
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another plugin answers", func() bool {
		now, ok := plugin.ProcessOf(b)
		return ok && now != pid && client.Check(t.Context()) == nil
	})
	return time.Since(killed)
}

// outlive freezes the server until all leases are over, and returns by how much
// the last Done closed after its deadline.
func outlive(t *testing.T, server *env.Server, leases []*core.Lease) (worst time.Duration) {
	t.Helper()
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Resume(); err != nil {
			t.Error(err)
		}
	}()
	var mu sync.Mutex
	var watching sync.WaitGroup
	for _, l := range leases {
		watching.Go(func() {
			<-l.Done()
			after := time.Since(l.Deadline())
			mu.Lock()
			defer mu.Unlock()
			worst = max(worst, after)
		})
	}
	watching.Wait()
	return worst
}
