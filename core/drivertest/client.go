package drivertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

// The interface held has the methods of a [core.Lease] that cases use.
type held interface {
	Owner() string
	Token() uint64
	Deadline() time.Time
	Valid() bool
	Done() <-chan struct{}
	Err() error
	State() core.State
	Release(context.Context) error
}

// hook modifies the leases that core returns. The suite's own tests use a hook to plant bugs in
// core. In other runs the hook is nil.
type hook func(held) held

func (k hook) apply(l held, err error) (held, error) {
	if err != nil || k == nil {
		return l, err
	}
	return k(l), nil
}

// client uses the backend through core, as an application does.
type client struct {
	*core.Client
	b    driver.Backend
	hook hook

	mu     sync.Mutex
	events []core.Event
}

// client returns a client on a new backend. If the case fails, the client's events are logged.
func (h *Harness) client(t T) *client { return h.clientOn(t, h.open(t)) }

func (h *Harness) clients(t T, n int) []*client {
	var all []*client
	for _, b := range h.backends(t, n) {
		all = append(all, h.clientOn(t, b))
	}
	return all
}

func (h *Harness) injected(t T, b driver.Backend) (*client, *injector) {
	g := &injector{Backend: b}
	return h.clientOn(t, g), g
}

func (h *Harness) clientOn(t T, b driver.Backend) *client {
	c := &client{b: b, hook: h.hook}
	c.Client = core.New(b, &core.Options{
		Label:   "conformance case",
		Logger:  slog.New(slog.DiscardHandler),
		OnEvent: c.record,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx) // an error is no failure: the case may have broken the backend
		if t.(*trial).Failed() {
			c.logEvents(t)
		}
	})
	return c
}

func (c *client) record(e core.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

func (c *client) logEvents(t T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("client %p: %d events, of which the last are:", c, len(c.events))
	for _, e := range c.events[max(0, len(c.events)-30):] {
		t.Logf("client %p: %s %v %q token %d owner %s: %v", c, e.Time.Format("05.000"), e.Kind, e.Name, e.Token, e.Owner, e.Err)
	}
}

func (c *client) saw(kind core.EventKind, name string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == kind && e.Name == name {
			n++
		}
	}
	return n
}

func (c *client) lock(t T, name string, o core.LockOptions) *core.Lock {
	l, err := c.Lock(name, &o)
	wantNil(t, err, "Lock")
	return l
}

// try calls TryAcquire once. The ctx of that call ends after 10 s, because the backend may hang.
func (c *client) try(t T, name string, o core.LockOptions) (held, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := c.lock(t, name, o).TryAcquire(ctx)
	return c.hook.apply(l, err)
}

func (c *client) mustTry(t T, name string, o core.LockOptions) held {
	l, err := c.try(t, name, o)
	if err != nil {
		t.Fatalf("TryAcquire of the free lock %q: %v%s", name, err, c.holding(t, name))
	}
	step(t, "TryAcquire of %q, token %d", name, l.Token())
	return l
}

func mustRelease(t T, l held) {
	wantNil(t, l.Release(t.Context()), fmt.Sprintf("Release of token %d", l.Token()))
	step(t, "Release of token %d", l.Token())
}

func wantCause(t T, l held, causes ...error) {
	if !slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(l.Err(), cause) }) {
		t.Errorf("want a cause of %q, got %v", causes, l.Err())
	}
}

func (c *client) acquire(ctx context.Context, t T, name string, o core.LockOptions) (held, error) {
	l, err := c.lock(t, name, o).Acquire(ctx)
	return c.hook.apply(l, err)
}

// acquiring is an Acquire that runs in the background.
type acquiring struct {
	c     *client
	name  string
	done  chan struct{} // closed when Acquire has returned and the fields below are set
	lease held
	err   error
	at    time.Time
}

// start starts an Acquire, and returns when the Acquire waits or has returned.
func (c *client) start(t T, name string, o core.LockOptions) *acquiring {
	before := c.saw(core.EventWaiting, name)
	a := c.launch(t, name, o)
	eventually(t, 10*time.Second, "Acquire waits or ends", func() bool {
		return a.ended() || c.saw(core.EventWaiting, name) > before
	})
	return a
}

func (c *client) launch(t T, name string, o core.LockOptions) *acquiring {
	ctx, cancel := context.WithCancel(t.Context())
	a := &acquiring{c: c, name: name, done: make(chan struct{})}
	l := c.lock(t, name, o)
	go func() {
		defer close(a.done)
		lease, err := l.Acquire(ctx)
		a.at = time.Now()
		a.lease, a.err = c.hook.apply(lease, err)
	}()
	t.Cleanup(func() { cancel(); <-a.done })
	return a
}

func (a *acquiring) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func stillWait(t T, d time.Duration, while string, all ...*acquiring) {
	throughout(t, d, func() string {
		for _, a := range all {
			if a.ended() {
				return fmt.Sprintf("Acquire(%q) has ended with %v while %s", a.name, a.err, while)
			}
		}
		return ""
	})
}

func (a *acquiring) granted(t T, limit time.Duration) held {
	if _, ended := receive(t, a.done, limit); !ended {
		mistimed(t, limit, "the waiting Acquire(%q) has not been granted the lock within %v%s", a.name, limit, a.c.holding(t, a.name))
	}
	if a.err != nil {
		t.Fatalf("the waiting Acquire(%q) ended with %v%s", a.name, a.err, a.c.holding(t, a.name))
	}
	return a.lease
}

func (c *client) holding(t T, name string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Second)
	defer cancel()
	h, err := c.b.Inspect(ctx, name)
	if err != nil {
		return fmt.Sprintf(" (Inspect: %v)", err)
	}
	return " (" + describe(h) + ")"
}

func describe(h driver.Holder) string {
	if !h.Held() {
		return "it is free"
	}
	return fmt.Sprintf("held by owner %q, label %q, token %d, for another %v, %d waiting", h.Owner, h.Label, h.Token, h.TTL, h.Waiters)
}

// injector stands between core and a backend. It declares no capabilities, so that core calls only
// methods whose requests or replies the injector can lose.
type injector struct {
	driver.Backend
	// lost makes the answer to each acquire. If it is nil, the backend answers. It is set before the
	// first acquire.
	lost func(context.Context) error
	cut  atomic.Bool // renewals, releases and withdrawals are not sent
}

var errCut = errors.New("cut by the case")

func (g *injector) pass(f func() error) error {
	if g.cut.Load() {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, errCut)
	}
	return f()
}

func (g *injector) Properties() driver.Properties {
	p := g.Backend.Properties()
	p.Capabilities = nil
	return p
}

func (g *injector) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	token, err := g.Backend.TryAcquire(ctx, r)
	if g.lost != nil {
		return 0, g.lost(ctx)
	}
	return token, err
}

func (g *injector) Renew(ctx context.Context, r driver.Request) error {
	return g.pass(func() error { return g.Backend.Renew(ctx, r) })
}

func (g *injector) Release(ctx context.Context, r driver.Request) error {
	return g.pass(func() error { return g.Backend.Release(ctx, r) })
}

func (g *injector) Withdraw(ctx context.Context, name, owner string) error {
	return g.pass(func() error { return g.Backend.Withdraw(ctx, name, owner) })
}
