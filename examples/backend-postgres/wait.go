package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// placeFor is how long a place in the queue outlives its Wait.
	placeFor = 2 * time.Second
	// unheard is how often a waiter asks while nobody can wake it.
	unheard = 100 * time.Millisecond
	// sweepEvery is how often the listener sweeps, which is how it finds out, too,
	// that the connection is dead: LISTEN says nothing when nothing comes.
	sweepEvery = 5 * time.Second
	// sweepFor bounds that.
	sweepFor = 3 * time.Second
)

// Wait implements driver.Waiter.
func (b *backend) Wait(ctx context.Context, r driver.Request, most time.Duration) (driver.Grant, error) {
	return driver.Grant{}, b.wait(ctx, r, most)
}

func (b *backend) wait(ctx context.Context, r driver.Request, most time.Duration) error {
	woken := make(chan struct{})
	b.mu.Lock()
	b.asleep[r.Owner] = woken // before the place is taken: the wake-up may be quicker than its reply
	if !b.heard {
		most = min(most, unheard)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.asleep[r.Owner] == woken {
			delete(b.asleep, r.Owner)
		}
	}()
	var taken, reserved bool
	r.TTL = most + placeFor
	err := b.step(ctx, "wait", r, one(awaitChange, &taken), do(enter), one(awaitTurn, &reserved))
	if err != nil || !taken && !reserved {
		return err
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-woken:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closed.Done():
		return driver.ErrClosed
	}
}

// wake wakes the waiter of that owner.
func (b *backend) wake(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if woken := b.asleep[owner]; woken != nil {
		delete(b.asleep, owner)
		close(woken)
	}
}

// hear says whether the host listens. Everybody is woken at each change: what
// was notified between two connections nobody has heard.
func (b *backend) hear(heard bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = heard
	for owner, woken := range b.asleep {
		delete(b.asleep, owner)
		close(woken)
	}
}

// listen hears wake-ups until the backend is closed, over one connection after
// the other.
func (b *backend) listen(settings *pgxpool.Config) {
	defer close(b.done)
	for b.closed.Err() == nil {
		err := b.hearNotices(settings)
		b.hear(false)
		if b.closed.Err() != nil {
			return
		}
		b.log.Debug("not listening for wake-ups", "err", err)
		select {
		case <-b.closed.Done():
		case <-time.After(unheard + rand.N(unheard)):
		}
	}
}

func (b *backend) hearNotices(settings *pgxpool.Config) error {
	conn, err := listening(b.closed, settings)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // of a server that does not answer there is nothing to say
	}()
	if _, err := conn.Exec(b.closed, "LISTEN "+pgx.Identifier{b.channel}.Sanitize()); err != nil {
		return err
	}
	b.hear(true)
	for {
		ctx, cancel := context.WithTimeout(b.closed, sweepEvery)
		notice, err := conn.WaitForNotification(ctx)
		cancel()
		switch {
		case err == nil:
			b.wake(notice.Payload)
			continue
		case b.closed.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		if err := b.sweep(conn); err != nil {
			return err
		}
	}
}

func (b *backend) sweep(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(b.closed, sweepFor)
	defer cancel()
	for _, s := range sweeps {
		if _, err := conn.Exec(ctx, s); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}
