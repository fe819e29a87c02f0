package tick

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/memory"
)

// The type backend wraps a driver.Backend, and a test can make its calls fail.
type backend struct {
	driver.Backend
	away    atomic.Bool
	denies  atomic.Bool       // the store refuses this client, as a store may in a failover
	revoked atomic.Bool       // the store says that every lease is gone
	broken  atomic.Bool       // the store says that the lease of every tick's lock is gone
	granted func(name string) // called before the answer to a grant; may be nil
}

var errAway = fmt.Errorf("%w: %w: connection refused", driver.ErrUnavailable, driver.ErrNotSent)

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	if b.away.Load() {
		return 0, errAway
	}
	if b.denies.Load() {
		return 0, fmt.Errorf("%w: read-only", driver.ErrDenied)
	}
	token, err := b.Backend.TryAcquire(ctx, r)
	if err == nil && b.granted != nil {
		b.granted(r.Name)
	}
	return token, err
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	switch {
	case b.away.Load():
		return errAway
	case b.revoked.Load(), b.broken.Load() && r.Name != "job":
		return driver.ErrNotHeld
	}
	return b.Backend.Renew(ctx, r)
}

func (b *backend) Withdraw(ctx context.Context, name, owner string) error {
	if b.away.Load() {
		return errAway
	}
	return b.Backend.Withdraw(ctx, name, owner)
}

func (b *backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	if b.away.Load() {
		return driver.Holder{}, errAway
	}
	return b.Backend.Inspect(ctx, name)
}

func (b *backend) Properties() driver.Properties {
	p := b.Backend.Properties()
	p.Capabilities = []driver.Capability{driver.CapAdmin}
	return p
}

// world has several hosts that share a store, and records what they run and report.
type world struct {
	t      *testing.T
	store  *memory.Store
	origin time.Time

	mu     sync.Mutex
	runs   map[time.Duration][]string // the hosts that began each tick, by the tick's time since origin
	active int
	beside bool // two runs have overlapped
	events map[Kind][]time.Duration
	hosts  []*host
}

type host struct {
	*Job
	b      *backend
	client *core.Client
}

func newWorld(t *testing.T) *world {
	return &world{t: t, store: memory.NewStore(), origin: time.Now(), runs: map[time.Duration][]string{}, events: map[Kind][]time.Duration{}}
}

func (w *world) host(s Schedule, opts Options) *host {
	w.t.Helper()
	b := &backend{Backend: w.store.Open()}
	quiet := slog.New(slog.DiscardHandler)
	c := core.New(b, &core.Options{Label: fmt.Sprint("host ", len(w.hosts)), Logger: quiet})
	opts.Logger = quiet
	opts.OnEvent = func(ev Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events[ev.Kind] = append(w.events[ev.Kind], ev.At.Sub(w.origin))
	}
	j, err := New(c, "job", s, &opts)
	if err != nil {
		w.t.Fatal(err)
	}
	h := &host{Job: j, b: b, client: c}
	w.hosts = append(w.hosts, h)
	w.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return h
}

// work returns a function that records its run and sleeps for the given time.
func (w *world) work(h *host, takes time.Duration) func(context.Context, Tick) error {
	return func(ctx context.Context, t Tick) error {
		w.mu.Lock()
		at := t.At.Sub(w.origin)
		w.runs[at] = append(w.runs[at], h.client.Properties().Name)
		w.active++
		w.beside = w.beside || w.active > 1
		w.mu.Unlock()
		sleep(ctx, takes)
		w.mu.Lock()
		w.active--
		w.mu.Unlock()
		return nil
	}
}

// The run method runs all hosts for the duration d. Call run only once.
func (w *world) run(d, takes time.Duration, meanwhile func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, h := range w.hosts {
		running.Go(func() {
			if err := h.Run(ctx, w.work(h, takes)); !errors.Is(err, context.Canceled) {
				w.t.Errorf("Run: %v", err)
			}
		})
	}
	if meanwhile != nil {
		running.Go(meanwhile)
	}
	time.Sleep(d)
	cancel()
	running.Wait()
	for at, by := range w.runs {
		if len(by) > 1 {
			w.t.Errorf("the tick at %v was run %d times", at, len(by))
		}
	}
	for _, h := range w.hosts {
		if err := h.client.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

// The told method returns the ticks that hosts reported with this kind, as times since origin.
func (w *world) told(kind Kind) (all []time.Duration) {
	return slices.Sorted(slices.Values(w.events[kind]))
}

func (w *world) wantTold(kind Kind, want ...time.Duration) {
	w.t.Helper()
	if got := w.told(kind); !slices.Equal(got, want) {
		w.t.Errorf("%v: told of %v, want %v", kind, got, want)
	}
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}
