package core

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// Options of a Client. A nil *Options and zero fields mean the defaults.
type Options struct {
	// Label tells people who holds a lock. It has at most 256 bytes of UTF-8. Default "hostname:pid".
	Label string
	// Logger gets every event. Events about lost or suspect leases, failed waits and the plugin have
	// level Warn. EventWaiting has level Warn unless another owner holds the lock. All other events
	// have level Debug. If OnEvent is nil, the client asks Logger about once a second whether Debug is
	// enabled. Default slog.Default().
	Logger *slog.Logger
	// OnEvent is called for each event in order, just after Logger. One goroutine makes all these
	// calls, one after another. Only Close waits for that goroutine, as the last step of Close.
	// OnEvent may call every method of this package, even Close. While OnEvent or Logger blocks,
	// 16,000 to 32,000 events can wait. Further events are dropped, and Event.Dropped counts them.
	OnEvent func(Event)
	// CleanupBudget limits a clean-up's time after the caller's ctx has ended. A clean-up is a
	// release, or the withdrawal of an acquire after the caller gave up. At least 0. Default 1s.
	CleanupBudget time.Duration
}

const (
	defaultCleanupBudget = time.Second
	maxLabel             = 256
)

func (o *Options) fill() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	var err error
	switch {
	case out.CleanupBudget < 0:
		err = fmt.Errorf("%w: CleanupBudget %v is less than 0s", ErrInvalid, out.CleanupBudget)
	case len(out.Label) > maxLabel:
		err = fmt.Errorf("%w: Label has %d bytes, allowed are %d", ErrInvalid, len(out.Label), maxLabel)
	case !utf8.ValidString(out.Label):
		err = fmt.Errorf("%w: Label %q is not valid UTF-8", ErrInvalid, out.Label)
	}
	if out.CleanupBudget <= 0 {
		out.CleanupBudget = defaultCleanupBudget
	}
	if out.Label == "" || err != nil {
		out.Label = defaultLabel()
	}
	return out, err
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d", strings.ToValidUTF8(host, "\uFFFD"), os.Getpid())
}

// Client manages the locks and leases of one host on one backend. Call Close after the last use.
type Client struct {
	b        tokenBackend
	name     string // name of the backend
	survives bool   // leases outlive the plugin process
	opts     Options
	invalid  error // error in the options, nil if they are valid

	clock   clock
	events  emitter
	sched   scheduler
	queues  queues
	janitor janitor
	calls   calls
	streams streams

	// The lifetime context ends when Close begins. The work context ends when Close has released or
	// abandoned all leases.
	lifetime, work       context.Context
	endLifetime, endWork context.CancelFunc
	started              sync.Once
	spawning             sync.Mutex
	ended                bool           // no goroutine may be spawned any more
	background           sync.WaitGroup // goroutines that end with the lifetime or work context

	served    atomic.Bool  // the store has answered an acquire or a check
	waitsTold atomic.Int64 // instant from which EventWaitFailed may be emitted again
	rtt       atomic.Int64 // duration of the last request that did not wait in the store
	closing   atomic.Bool
	ops       atomic.Int64  // public calls under way
	idle      chan struct{} // gets a signal when ops falls to zero while closing
	closeOnce sync.Once
	closed    chan struct{} // closed when the first Close has finished
	closeErr  error         // set before closed
}

// New returns a Client on the backend b. The client's Close also closes b. New sends nothing to the
// store. If opts is invalid, New still returns a client, but its methods except Close and
// Properties fail. Their errors wrap ErrInvalid and say what is wrong.
func New(b driver.Backend, opts *Options) *Client {
	props := b.Properties()
	filled, invalid := opts.fill()
	c := &Client{
		invalid:  invalid,
		b:        newTokenBackend(b),
		name:     props.Name,
		survives: props.SurvivesPlugin,
		opts:     filled,
		idle:     make(chan struct{}, 1),
		closed:   make(chan struct{}),
	}
	c.clock.init(bootTime)
	c.events.init(c)
	c.sched.init(c)
	c.queues.init()
	c.janitor.c = c
	c.calls.init(c)
	c.lifetime, c.endLifetime = context.WithCancel(context.Background())
	c.work, c.endWork = context.WithCancel(context.Background())
	c.events.add(Event{Kind: EventOpened})
	return c
}

// Properties returns the claims of the backend about itself, without asking the store.
func (c *Client) Properties() Properties { return c.b.Properties() }

// Check asks the store in one round trip whether this client can use it. It returns nil if the
// store is reachable, accepts the credentials and has safe settings. Otherwise, the error says why.
func (c *Client) Check(ctx context.Context) error {
	return c.question(ctx, "check", "", func(ctx context.Context) error {
		err := c.b.Check(ctx)
		c.noteServed(err)
		return err
	})
}

// maxLook limits the time of a method that calls the backend once, because the backend may hang.
const maxLook = 5 * time.Second

func (c *Client) question(ctx context.Context, op, name string, ask func(context.Context) error) error {
	if err := c.begin(op, clip(name)); err != nil {
		return err
	}
	defer c.end()
	ctx, cancel := context.WithTimeout(ctx, maxLook)
	defer cancel()
	return c.wrap(op, clip(name), ask(ctx))
}

// Inspect returns the holder of the lock called name, or the zero Holder if the lock is free.
// Inspect, Check, Break, [Elector.Leader] and [Term.Proclaim] wait at most 5 s for an answer.
func (c *Client) Inspect(ctx context.Context, name string) (Holder, error) {
	return c.inspect(ctx, "inspect", name)
}

func (c *Client) inspect(ctx context.Context, op, name string) (h Holder, err error) {
	err = c.question(ctx, op, name, func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		found, err := c.b.Inspect(ctx, name)
		if err == nil {
			h = c.here(name, found)
		}
		return err
	})
	return h, err
}

// The here method returns h. If a lease of this host has the same grant, h gets that lease's token.
func (c *Client) here(name string, h Holder) Holder {
	l := c.queues.holder(name)
	if l != nil && l.owner == h.Owner && GrantNumber(l.token) == GrantNumber(h.Token) {
		h.Token = l.token
	}
	return h
}

// List yields the holder of every held lock whose name starts with prefix, in any order. An empty
// prefix matches all names. The body of a loop over the sequence must not call Close. After an
// error, the sequence ends. The error wraps ErrUnsupported if the backend cannot list locks.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		if err := c.begin("list", prefix); err != nil {
			yield(Holder{}, err)
			return
		}
		defer c.end()
		err := c.needAdmin()
		more := true
		if err == nil {
			err = c.b.List(ctx, prefix, func(h Holder) bool {
				more = more && yield(c.here(h.Name, h), nil)
				return more
			})
		}
		if err != nil && more {
			yield(Holder{}, c.wrap("list", prefix, err))
		}
	}
}

// Break ends the current lease of the lock called name if token belongs to the store's current
// grant of that lock. Otherwise, the error is a [*NotHeldError]. Inspect returns a token of that
// grant. A hand-over inside a host keeps the grant, so the token of the earlier lease also breaks
// the later lease. The error wraps ErrUnsupported if the backend cannot break leases.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	return c.question(ctx, "break", name, func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		if err := c.needAdmin(); err != nil {
			return err
		}
		if err := c.b.Break(ctx, name, token); err != nil {
			return err
		}
		c.sched.loseGrant(name, token, func(*Lease) error { return ErrRevoked })
		return nil
	})
}

func (c *Client) needAdmin() error {
	if c.b.admin != nil {
		return nil
	}
	return fmt.Errorf("%w: %s does not declare the capability %q", ErrUnsupported, c.name, driver.CapAdmin)
}

// begin counts a call of a public method. If it returns nil, the method must call end.
func (c *Client) begin(op, name string) error {
	c.ops.Add(1)
	if c.closing.Load() {
		c.end()
		return c.wrap(op, name, ErrClosed)
	}
	if c.invalid != nil {
		c.end()
		return c.wrap(op, name, c.invalid)
	}
	return nil
}

// Every method that has called begin calls the end method last. That call ends all leases past
// their deadline, so that no lease looks held after its deadline (rule L3).
func (c *Client) end() {
	c.expireDue()
	if c.ops.Add(-1) == 0 && c.closing.Load() {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// expireDue replaces begin and end in methods that only read a lease.
func (c *Client) expireDue() instant {
	now := c.clock.now()
	c.sched.sweep(now)
	c.events.ask(now)
	return now
}

func (c *Client) start() {
	c.started.Do(func() {
		if c.b.watcher != nil {
			c.spawn(c.watch)
		}
	})
}

// spawn runs the function f in a goroutine that Close waits for. The function must return when
// c.lifetime or c.work has ended. Once Close waits, spawn returns false and does not run f.
func (c *Client) spawn(f func()) bool {
	c.spawning.Lock()
	defer c.spawning.Unlock()
	if !c.ended {
		c.background.Go(f)
	}
	return !c.ended
}

func (c *Client) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Backend: c.name, Name: name, Err: err}
}

// sleep waits for the duration d and returns true. If ctx ends first, sleep returns false at once.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
