package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// LockOptions are the options of a Lock. Nil and zero fields mean the defaults.
type LockOptions struct {
	// TTL is the time for which the store keeps the lock after the last renewal. If this host vanishes
	// together with its plugin, other hosts wait until the TTL is over. TTL must be within the bounds
	// of the backend's Properties, and is never rounded. Default 10s.
	TTL time.Duration
	// RenewEvery is the interval between renewals. It must be less than TTL/2. Default TTL/3.
	RenewEvery time.Duration
	// NoRenew makes leases of a fixed length. Such leases are not renewed, and are lost at their
	// deadline. The deadline counts from the time at which the acquire was sent. If the store granted
	// the lock while this client waited in the queue, the deadline counts from the client's next
	// request, which gives the lease its TTL. If AtLeast equals TTL, the lock stays taken for that
	// time whatever happens to this process. Only [Client.Break] with the lease's token, on any host,
	// can free the lock sooner. RenewEvery and Healthy must not be set together with NoRenew. Default
	// false.
	NoRenew bool
	// AtLeast is the shortest time for which the lock stays taken after its grant, even if it is
	// released earlier or this host dies. It is at most TTL. AtLeast alone does not make a scheduled
	// job run once: a host that is paused for longer than AtLeast runs the job again. Package
	// core/tick prevents that. Default 0.
	AtLeast time.Duration
	// MaxHold is the time after which a lease ends with cause ErrMaxHold. It is a safeguard against a
	// holder that hangs while its lease is renewed. Default 0, no limit.
	MaxHold time.Duration
	// Healthy is called by a goroutine of the client before each renewal. The only exception is the
	// first renewal of a lease that the store granted to a waiter without a request. If Healthy
	// returns an error, the lease is lost with cause ErrUnhealthy. Healthy should return soon after
	// its ctx ends. Default nil: always healthy.
	Healthy func(context.Context) error
	// ReleaseInBackground makes Do and TryDo return when the release has begun, one round trip before
	// the store has confirmed it. The lease is then over. Close waits for the release. If the process
	// ends before the release, the plugin releases the lock. If the release fails, only EventReleased
	// reports that. Default false.
	ReleaseInBackground bool
	// Value is published with the lock, at most 64 KiB. Default none.
	Value []byte
}

const (
	defaultTTL = 10 * time.Second
	maxName    = 512
	maxValue   = 64 << 10
)

// Lock is the lock of one name on one backend, with options. A Lock keeps nothing open and needs no
// closing. Any number of leases may be acquired through it, one after another. Goroutines of one
// host that wait for one name get the lock in the order in which they began to wait.
type Lock struct {
	c        *Client
	name     string
	opts     LockOptions
	election bool // the lock of an election, whose observers look for the holder in the store
}

// Lock returns the lock called name. A name is 1 to 512 bytes of valid UTF-8,
// may contain any character, and is case-sensitive. For a bad name or option
// the error wraps ErrInvalid and names the bounds. Lock sends nothing.
func (c *Client) Lock(name string, opts *LockOptions) (*Lock, error) {
	if err := c.begin("lock", name); err != nil {
		return nil, err
	}
	defer c.end()
	return c.lock("lock", name, opts)
}

func (c *Client) lock(op, name string, opts *LockOptions) (*Lock, error) {
	l := &Lock{c: c, name: name}
	if opts != nil {
		l.opts = *opts
	}
	if err := checkName(name); err != nil {
		return nil, c.wrap(op, clip(name), err)
	}
	if err := l.opts.fill(c.b.Properties()); err != nil {
		return nil, c.wrap(op, name, err)
	}
	l.opts.Value = bytes.Clone(l.opts.Value)
	return l, nil
}

// inherits reports whether a goroutine that waits for the Lock l may take over a lease that another
// goroutine got from the Lock from. A hand-over sends no request, so TTL and AtLeast stay the same.
func (l *Lock) inherits(from *Lock) bool {
	return l.opts.TTL == from.opts.TTL && l.opts.AtLeast == 0 && l.plain() && from.plain()
}

func (l *Lock) plain() bool { return l.opts.Value == nil && !l.opts.NoRenew && !l.election }

func clip(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:32] + "..."
}

func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w: name has %d bytes, allowed are 1 to %d", ErrInvalid, len(name), maxName)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: name is not valid UTF-8", ErrInvalid)
	}
	return nil
}

func (o *LockOptions) fill(p driver.Properties) error {
	which := "TTL"
	if o.TTL == 0 {
		o.TTL, which = defaultTTL, "the default TTL"
	}
	if o.RenewEvery == 0 && !o.NoRenew {
		o.RenewEvery = o.TTL / 3
	}
	switch {
	case o.TTL < p.TTLMin || o.TTL > p.TTLMax || p.TTLStep > 0 && o.TTL%p.TTLStep != 0:
		return fmt.Errorf("%w: %s %v does not fit %s: minimum %v, step %v, maximum %v",
			ErrInvalid, which, o.TTL, p.Name, p.TTLMin, p.TTLStep, p.TTLMax)
	case o.NoRenew && (o.RenewEvery != 0 || o.Healthy != nil):
		return fmt.Errorf("%w: NoRenew with RenewEvery %v and Healthy set %t: leases that are never renewed have neither",
			ErrInvalid, o.RenewEvery, o.Healthy != nil)
	case o.RenewEvery < 0:
		return fmt.Errorf("%w: RenewEvery %v is negative", ErrInvalid, o.RenewEvery)
	case o.RenewEvery >= o.TTL/2:
		return fmt.Errorf("%w: RenewEvery %v is not less than half of TTL %v", ErrInvalid, o.RenewEvery, o.TTL)
	case o.AtLeast < 0 || o.AtLeast > o.TTL:
		return fmt.Errorf("%w: AtLeast %v is not between 0 and TTL %v", ErrInvalid, o.AtLeast, o.TTL)
	case o.MaxHold < 0:
		return fmt.Errorf("%w: MaxHold %v is negative", ErrInvalid, o.MaxHold)
	case o.MaxHold > 0 && o.MaxHold < o.AtLeast:
		return fmt.Errorf("%w: MaxHold %v is less than AtLeast %v", ErrInvalid, o.MaxHold, o.AtLeast)
	}
	return checkValue(o.Value)
}

func checkValue(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("%w: value has %d bytes, allowed are %d", ErrInvalid, len(value), maxValue)
	}
	return nil
}

// Name returns the lock's name.
func (l *Lock) Name() string { return l.name }

// Acquire waits until the lock is granted, ctx ends, or an error shows that waiting cannot help
// (K1). Acquire also waits if the backend is down, or if it refuses this client but has served this
// client before (K8). Such a refusal may end, for example after a failover or a change of
// passwords. [Client.Check] returns the reason of an outage or a refusal.
//
// Locks are not reentrant: a goroutine that acquires a lock that it holds waits for itself. But if
// ctx comes from Do, TryDo, [Lease.Context] or [Term.Context] for this lock and client, Acquire
// knows that the caller holds the lock, and returns [ErrReentrant].
//
// The error is an [*Error]. When ctx has ended, errors.Is(err, ctx.Err()) is true, and the error
// also says what Acquire was waiting for. After an error the caller does not hold the lock. But if
// the error is an [*IndeterminateError], the lock may stay taken until the time that the error
// names. After ctx has ended, Acquire takes at most Options.CleanupBudget to undo the attempt.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	if err := l.c.begin("acquire", l.name); err != nil {
		return nil, err
	}
	defer l.c.end()
	return l.acquire(ctx, "acquire")
}

// TryAcquire asks the store once and never waits for the lock (K2). If another owner holds the
// lock, even in this host, the error satisfies errors.Is(err, ErrHeld), and errors.As finds a
// [*HeldError]. If the store does not answer, TryAcquire undoes the attempt and the error wraps
// ErrUnavailable; if it cannot undo the attempt, the error is an [*IndeterminateError]. If the
// store refuses this client, which may also happen for a while in a failover, the error wraps
// ErrDenied. While the store does not answer, TryAcquire takes at most 3 s, or less if the TTL is
// shorter or ctx ends. Undoing the attempt then takes at most Options.CleanupBudget (1 s by
// default). The limit is as long as 3 s so that TryAcquire does not fail whenever a lost connection
// must be replaced. A job that runs every second should pass a ctx that ends after a second.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if err := l.c.begin("acquire", l.name); err != nil {
		return nil, err
	}
	defer l.c.end()
	return l.tryAcquire(ctx)
}

// Do acquires the lock, waiting as Acquire does, and runs fn under it. The ctx of fn ends when the
// lease is lost, the caller's ctx ends, or the client is closed; context.Cause says why. When fn
// has returned, the lock is released, and [Client.Close] waits for that release. A lost lease is
// not released, but left to expire.
//
// The error joins fn's error, the cause if the lease was lost before fn returned, and the error of
// the release unless ReleaseInBackground is set. If Close did not wait until fn had returned, the
// error wraps ErrClosed, and the lock is left to expire. If errors.Is(err, [ErrUnreleased]) is
// true, only the release has failed. In that case fn returned nil while it held the lease, so do
// not run fn again because of the error.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	return l.do(ctx, fn, func() (*Lease, error) { return l.acquire(ctx, "acquire") })
}

// TryDo is like Do, but acquires with TryAcquire and so does not wait. When another owner holds
// the lock, TryDo does not run fn and returns an error that satisfies errors.Is(err, ErrHeld).
// When ctx shows that the caller holds the lock, the error also wraps [ErrReentrant].
//
// While the store does not answer, TryDo waits for the acquire as long as TryAcquire does. After fn
// has returned, TryDo waits for the release as [Lease.Release] does, until the lease is over or
// Options.CleanupBudget has passed after the end of ctx.
func (l *Lock) TryDo(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	return l.do(ctx, fn, func() (*Lease, error) { return l.tryAcquire(ctx) })
}

func (l *Lock) do(ctx context.Context, fn func(context.Context, *Lease) error, acquire func() (*Lease, error)) error {
	if err := l.c.begin("acquire", l.name); err != nil {
		return err
	}
	defer l.c.end()
	lease, err := acquire()
	if err != nil {
		return err
	}
	return l.run(ctx, lease, fn)
}

func (l *Lock) run(ctx context.Context, lease *Lease, fn func(context.Context, *Lease) error) (err error) {
	c := l.c
	fctx, cancel := lease.context(c.inCallback(ctx))
	stop := context.AfterFunc(c.lifetime, func() { cancel(ErrClosed) })
	defer func() { // also when fn panics
		stop()
		switch lost := lease.Err(); {
		case lost == nil && l.opts.ReleaseInBackground:
			c.ops.Add(1)
			go func() {
				defer c.end()
				_ = lease.Release(ctx) // an event reports its error
			}()
			<-lease.Done()
		case lost == nil:
			err = afterWork(err, lease.Release(ctx))
		case errors.Is(lost, ErrClosed) || !errors.Is(lost, ErrReleased): // fn may have released the lease
			err = joinErrors(err, c.wrap("hold", l.name, lost))
		}
		c.sched.served(lease)
		cancel(context.Canceled)
	}()
	if !c.sched.serve(lease) {
		if c.closing.Load() {
			return c.wrap("acquire", l.name, ErrClosed)
		}
		return nil // the lease was lost before fn could start; the deferred function sets err
	}
	return fn(fctx, lease)
}

func afterWork(work, release error) error {
	if work == nil && release != nil && !errors.Is(release, ErrNotHeld) {
		return fmt.Errorf("%w: %w", ErrUnreleased, release)
	}
	return joinErrors(work, release)
}

// leasesOf is a context key. Its value lists the leases of client c whose end also ends the
// context. With that context, an acquire of the lock of such a lease is refused, because it would
// wait for itself.
type leasesOf struct{ c *Client }

// A holding is a lease whose end ends a context. Its outer field is another such lease, or nil.
type holding struct {
	lease *Lease
	outer *holding
}

// The holding method returns ctx with l added to the leases whose end also ends ctx.
func (l *Lease) holding(ctx context.Context) context.Context {
	key := leasesOf{l.c}
	outer, _ := ctx.Value(key).(*holding)
	return context.WithValue(ctx, key, &holding{l, outer})
}

// refuseReentry returns an error if ctx ends with a lease of the lock called name. A ctx that never
// ends is not refused: it outlives the lease, although it may have the values of the lease's ctx.
//
// Note: a ctx from context.WithoutCancel may later get a deadline or a cancel function, and may
// outlive the lease too. It is also refused, because it looks like a ctx that ends with the lease.
func (c *Client) refuseReentry(ctx context.Context, name string) error {
	h, _ := ctx.Value(leasesOf{c}).(*holding)
	for ; h != nil && ctx.Done() != nil; h = h.outer {
		if h.lease.lock.name == name && h.lease.Valid() {
			return fmt.Errorf("%w, and locks are not reentrant: %w", ErrReentrant, h.lease.refusal(nil))
		}
	}
	return nil
}
