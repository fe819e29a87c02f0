// Package core is what applications use: locks and leader elections on a
// backend, with all the waiting, renewing and deadlines that these need.
//
// A [Client] stands for one backend in one host. [Client.Lock] names a lock,
// [Lock.Acquire] returns a [Lease], and the client renews it until it is
// released or lost. A lease is lost at its deadline at the latest, by the
// clock of this process, whatever the backend does: watch [Lease.Done], or work
// under [Lease.Context]. That is no proof. A process can be paused after its
// last look at the clock; only [Lease.Token], checked by the resource that is
// written to, protects against that.
//
// [Client.Elector] elects a leader. A leader is the holder of a lease with a
// value: a lock and an election of one name are the same lock.
//
// All types are safe for use by many goroutines.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// Options of a Client. Nil and zero fields mean the defaults.
type Options struct {
	// Label says for people who holds this client's locks, in at most 256
	// bytes of UTF-8. Default "hostname:pid".
	Label string
	// Logger gets every event: Debug for routine, Warn for suspect and lost
	// leases, for waits that fail, and for the plugin's end and start. Whether
	// it wants Debug is asked about once a second. Default slog.Default().
	Logger *slog.Logger
	// OnEvent is called for each event, one at a time and in order, as Logger
	// is just before, on a goroutine that nothing waits for but the end of
	// Close. It may call everything, Close included. While it or Logger blocks,
	// some 16,000 events wait; more are dropped, and counted in Event.Dropped.
	OnEvent func(Event)
	// CleanupBudget is how long a clean-up (releasing, withdrawing an acquire
	// that was given up) may go on although the caller's ctx has ended.
	// Not negative. Default 1s.
	CleanupBudget time.Duration
}

const (
	defaultCleanupBudget = time.Second
	maxLabel             = 256
)

// fill fills in defaults and checks what was given.
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

// Client holds the locks of one host on one backend. Close it when done.
type Client struct {
	b        tokenBackend
	name     string // of the backend
	survives bool   // leases outlive the plugin process
	opts     Options
	invalid  error // what is wrong with them

	clock   clock
	events  emitter
	sched   scheduler
	queues  queues
	janitor janitor
	calls   calls
	streams streams

	// lifetime ends when Close begins, work when Close has released everything.
	// They are no caller's contexts but the client's own span.
	lifetime, work       context.Context
	endLifetime, endWork context.CancelFunc
	started              sync.Once
	spawning             sync.Mutex
	ended                bool           // nothing may be spawned any more
	background           sync.WaitGroup // goroutines that end with lifetime or work

	served    atomic.Bool  // the store has answered an acquire or a check
	waitsTold atomic.Int64 // instant at which a failed wait is told again
	rtt       atomic.Int64 // what the last request took that did not wait; see took
	closing   atomic.Bool
	ops       atomic.Int64  // public calls under way
	idle      chan struct{} // gets a signal when ops falls to zero while closing
	closeOnce sync.Once
	closed    chan struct{} // closed when Close is through
	closeErr  error         // set before closed
}

// New returns a Client that owns b: Close closes it. Nothing is sent. Options
// out of range are the error of every call but Close: it wraps ErrInvalid and
// names the bounds.
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
	c.janitor.init(c)
	c.calls.init(c)
	c.lifetime, c.endLifetime = context.WithCancel(context.Background())
	c.work, c.endWork = context.WithCancel(context.Background())
	c.events.add(Event{Kind: EventOpened})
	return c
}

// Properties returns the claims that the backend makes, from memory.
func (c *Client) Properties() Properties { return c.b.Properties() }

// Check asks the store in one round trip whether it would serve requests: it
// is reachable, accepts the credentials, and has safe settings. While it does
// not, the error says why.
func (c *Client) Check(ctx context.Context) error {
	return c.question(ctx, "check", "", func(ctx context.Context) error {
		err := c.b.Check(ctx)
		c.heard(err)
		return err
	})
}

// begin opens every public operation, which ends with end.
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

// end closes a public operation. A lease that ran out meanwhile is ended
// first, so that no result of this process looks newer than its loss (L3).
func (c *Client) end() {
	c.look()
	if c.ops.Add(-1) == 0 && c.closing.Load() {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// look is begin and end for calls that only look at a lease.
func (c *Client) look() instant {
	now := c.clock.now()
	c.sched.sweep(now)
	c.events.ask(now)
	return now
}

// start starts what listens to the backend, before the first lock is asked for.
func (c *Client) start() {
	c.started.Do(func() {
		if c.b.watcher != nil {
			c.spawn(c.watch)
		}
	})
}

// spawn starts a goroutine that ends with lifetime or work, and for which Close
// waits. It returns false when Close has already begun to.
func (c *Client) spawn(f func()) bool {
	c.spawning.Lock()
	defer c.spawning.Unlock()
	if !c.ended {
		c.background.Go(f)
	}
	return !c.ended
}

func (c *Client) stopSpawning() {
	c.spawning.Lock()
	defer c.spawning.Unlock()
	c.ended = true
}

// wrap makes an Error of err; nil stays nil, and an Error stays as it is.
func (c *Client) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Backend: c.name, Name: name, Err: err}
}

// sleep pauses for d. It returns false, at once, when ctx ends.
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
