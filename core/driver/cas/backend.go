package cas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

type backend struct {
	store   Store
	watcher Watcher       // nil if the store is not a Watcher
	timeout time.Duration // the longest time that one request may take
	step    time.Duration // the step in which the store's clock counts, added to each lease

	mu     sync.Mutex
	claims driver.Properties
	topics map[string]*topic // the watched keys
	life   context.Context   // ends with Close
	end    context.CancelFunc
	calls  sync.WaitGroup
}

// New returns a backend that keeps its locks in the store s. The backend claims the properties p,
// and those that the function [Properties] adds. Close of the backend closes s. A request to s,
// except List, ends after timeout, which must be positive, or when the caller's ctx ends.
func New(s Store, p driver.Properties, timeout time.Duration) driver.Backend {
	b := &backend{store: s, timeout: timeout, step: p.TTLStep, topics: map[string]*topic{}}
	b.watcher, _ = s.(Watcher)
	b.claims = Properties(p, b.watcher != nil)
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

func (b *backend) Properties() driver.Properties {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.claims
	p.Capabilities = slices.Clone(p.Capabilities)
	return p
}

// begin registers a call, so that Close can cancel it and wait for its end. The call must use the
// returned context, and must call the function done at its end.
func (b *backend) begin(ctx context.Context) (inside context.Context, done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return nil, nil, b.named(driver.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, b.named(fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err))
	}
	b.calls.Add(1)
	inside, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.life, func() { cancel(driver.ErrClosed) })
	return inside, func() { stop(); cancel(nil); b.calls.Done() }, nil
}

func (b *backend) named(err error) error { return fmt.Errorf("%s: %w", b.claims.Name, err) }

var sentinels = []error{driver.ErrUnavailable, driver.ErrDenied, driver.ErrConfig, driver.ErrInvalid, driver.ErrUnsupported}

// failed adds sentinel errors of package driver to err. If unsent is true, no change was sent to
// the store. Then an ErrUnavailable also wraps ErrNotSent, so that no withdrawal is needed.
func (b *backend) failed(ctx context.Context, err error, unsent bool) error {
	known := func(sentinel error) bool { return errors.Is(err, sentinel) }
	switch {
	case context.Cause(ctx) == driver.ErrClosed:
		err = fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case !slices.ContainsFunc(sentinels, known):
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if unsent && errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrNotSent) {
		err = fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	return b.named(err)
}

func ask[R any](ctx context.Context, b *backend, f func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return f(ctx)
}

// The record that read returns may have a lease or withdrawals that have expired.
func (b *backend) read(ctx context.Context, name string) (e Entry, r record, err error) {
	e, err = ask(ctx, b, func(ctx context.Context) (Entry, error) { return b.store.Read(ctx, keyOf(name)) })
	if err == nil {
		r, err = b.decode(e, name)
	}
	return e, r, err
}

// change reads the record of the lock called name, lets the function f change it, and writes it,
// unless f returns an error. If another client writes the record in between, change reads it again
// and calls f again. It returns the Entry from Put.
//
// The parameter now of f is the store's time before the write. So a lease that seems expired to f
// has expired, and a lease that f makes lives at least as long as f says. If the write succeeds, no
// other client has written the record since the read. But a lease that f found alive may have
// expired before the write. Method Renew handles this case.
func (b *backend) change(ctx context.Context, name string, f func(r *record, now time.Time) error) (written Entry, err error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer done()
	for {
		e, r, err := b.read(ctx, name)
		if err != nil {
			return e, b.failed(ctx, err, true)
		}
		r.tidy(e)
		if err := f(&r, e.Now); err != nil {
			return e, err
		}
		written, err = ask(ctx, b, func(ctx context.Context) (Entry, error) { return b.write(ctx, e, r) })
		if err == nil {
			return written, nil
		}
		if !errors.Is(err, ErrConflict) {
			return e, b.failed(ctx, err, false)
		}
	}
}

// If r has no holder and no withdrawals, write deletes the key.
func (b *backend) write(ctx context.Context, e Entry, r record) (Entry, error) {
	if r.Holder == nil && len(r.Withdrawn) == 0 {
		return Entry{}, b.store.Delete(ctx, keyOf(r.Name), e.Revision)
	}
	value, err := r.encode()
	if err != nil {
		return Entry{}, err
	}
	return b.store.Put(ctx, keyOf(r.Name), value, e.Revision, r.needed(e.Now))
}

// changeHeld calls change with f. If the lease that r names is over, it returns a NotHeldError.
func (b *backend) changeHeld(ctx context.Context, r driver.Request, f func(s *record, now time.Time)) (Entry, error) {
	return b.change(ctx, r.Name, func(s *record, now time.Time) error {
		if s.Holder == nil || s.Holder.Owner != r.Owner || s.Holder.Token != r.Token {
			return &driver.NotHeldError{Holder: s.shown(now)}
		}
		f(s, now)
		return nil
	})
}

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	granted, err := b.change(ctx, r.Name, func(s *record, now time.Time) error {
		if _, refused := s.Withdrawn[r.Owner]; refused {
			return driver.ErrWithdrawn
		}
		if s.Holder != nil {
			return &driver.HeldError{Holder: s.shown(now)}
		}
		s.Holder = &holder{Owner: r.Owner, Label: r.Label, Value: r.Value, End: now.Add(r.TTL + b.step).UnixNano()}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return granted.Revision, nil
}

// Renew must know whether the store wrote the renewal before the lease expired. The renewal was in
// time if all requests together took less time than the lease had left, or if the write time from
// Put shows it. Otherwise, Renew reads the record. If the entry has a write time, clients ignore a
// late renewal (see holder.void). If it has none, Renew ends a lease whose renewal may be late.
func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	ctx, done, err := b.begin(ctx) // also for the read after the write
	if err != nil {
		return err
	}
	defer done()
	var renewed holder
	var read time.Time // when the record was read, by the store's clock
	asked := time.Now()
	written, err := b.changeHeld(ctx, r, func(s *record, now time.Time) {
		s.Holder.By, s.Holder.End = s.Holder.End, now.Add(r.TTL+b.step).UnixNano()
		renewed, read = *s.Holder, now
	})
	if err != nil {
		return err
	}
	atMost := time.Since(asked) * 101 / 100 // the speeds of two clocks differ by less than 1 %
	if read.Add(atMost+b.step).UnixNano() < renewed.By || !written.Written.IsZero() && !renewed.void(written) {
		return nil
	}
	e, s, err := b.read(ctx, r.Name)
	if err != nil {
		return b.failed(ctx, err, false)
	}
	s.tidy(e)
	switch {
	case s.Holder == nil || s.Holder.Owner != r.Owner || s.Holder.Token != r.Token:
		return &driver.NotHeldError{Holder: s.shown(e.Now)}
	case !e.Written.IsZero() || e.Now.UnixNano() < renewed.By:
		return nil // the renewal was in time
	}
	if err := b.Release(ctx, r); err != nil {
		return err
	}
	return &driver.NotHeldError{}
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	_, err := b.changeHeld(ctx, r, func(s *record, now time.Time) {
		if r.Keep <= 0 {
			s.Holder = nil
			return
		}
		s.Holder.End = min(s.Holder.End, now.Add(r.Keep+b.step).UnixNano())
	})
	return err
}

// Withdraw writes the record even if the owner has no grant. So a TryAcquire that has read the old
// record can no longer write. A later TryAcquire finds the withdrawal in the record.
func (b *backend) Withdraw(ctx context.Context, name, owner string) error {
	_, err := b.change(ctx, name, func(s *record, now time.Time) error {
		if s.Holder != nil && s.Holder.Owner == owner {
			s.Holder = nil
		}
		if s.Withdrawn == nil {
			s.Withdrawn = map[string]int64{}
		}
		s.Withdrawn[owner] = now.Add(tombstoneFor).UnixNano()
		return nil
	})
	return err
}

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	_, err := b.changeHeld(ctx, r, func(s *record, _ time.Time) { s.Holder.Value = r.Value })
	return err
}

// Inspect reports an expiry only if it finds the same revision twice. A store may read the record
// first and its clock later. If the lease is renewed between these two reads, the lease in the old
// record seems to have expired.
func (b *backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return driver.Holder{}, err
	}
	defer done()
	for over := uint64(0); ; {
		e, r, err := b.read(ctx, name)
		if err != nil {
			return driver.Holder{}, b.failed(ctx, err, true)
		}
		found := r.Holder != nil
		if r.tidy(e); r.Holder != nil || !found || e.Revision == over {
			return r.shown(e.Now), nil
		}
		over = e.Revision
	}
}

func (b *backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	var bad error
	err = b.store.List(ctx, func(e Entry) bool {
		r, err := b.decode(e, "")
		if err != nil {
			bad = err
			return false
		}
		r.tidy(e)
		return r.Holder == nil || !strings.HasPrefix(r.Name, prefix) || emit(r.shown(e.Now))
	})
	if err = errors.Join(err, bad); err != nil {
		return b.failed(ctx, err, true)
	}
	return nil
}

func (b *backend) Break(ctx context.Context, name string, token uint64) error {
	_, err := b.change(ctx, name, func(s *record, now time.Time) error {
		if s.Holder == nil || s.Holder.Token != token {
			return &driver.NotHeldError{Holder: s.shown(now)}
		}
		s.Holder = nil
		return nil
	})
	return err
}

func (b *backend) Check(ctx context.Context) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	about, err := ask(ctx, b, b.store.Check)
	if err != nil {
		return b.failed(ctx, err, true)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims.Server, b.claims.Durability = about.Server, about.Durability
	return nil
}

// Close cancels the calls that are under way, and waits until they end.
func (b *backend) Close(ctx context.Context) error {
	b.mu.Lock()
	first := b.life.Err() == nil
	b.end()
	for key, t := range b.topics {
		t.close()
		delete(b.topics, key)
	}
	b.mu.Unlock()
	if !first {
		return nil
	}
	b.calls.Wait()
	return b.store.Close(ctx)
}
