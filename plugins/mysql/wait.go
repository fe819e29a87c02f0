package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Waiters stand in the queue column of the row, and sleep in the server (see
// signs), each on a connection of its own. A connection has a wake id: a
// GET_LOCK of a random name, which no other takes. What frees the row grants it to
// the first waiter whose process lives, reads the waiter's wake id in the same
// statement and, after the commit, interrupts what runs there: it looks
// the owner up (IS_USED_LOCK) and ends it (KILL QUERY). The waiter reads the row
// then: the grant's token, and its end. MariaDB reads it in the same block, so that
// the reply to the waiter's statement brings the grant. The uncontended path pays nothing for all
// that.
//
// Why two never hold it: the server says how much later the grant ends than its
// statement of sleep began, both by its own clock, and the waiter counts that from
// when it sent the statement, which was before it began; so it lets go before
// the server does. No sign of life and no other clock is in that. A server's clock
// that is turned back meanwhile shortens it. One that is turned forward lengthens it,
// and is noticed where the grant would be younger than the reply. The waiter is woken only
// after the commit, so that no crash takes the grant back that it knows of; what it would find
// when it wakes by itself may not be on disk yet, and so it asks then, which is a
// commit (see [statement.Confirm]). A waiter that is frozen, or was killed while it was
// being granted the lock, costs its first span (see [kit.Distance]): then those behind it, none of which sleeps for
// longer, find the lock free, and the first of them is granted it. A process that
// is silent (see signs) is passed over.
//
// Note: what was tried or considered instead. GET_LOCK of the lock's name, held
// by the holder: a trip and a connection for each lease, waiters or not, and a
// lost machine keeps it for hours. The same, taken only once there are waiters:
// the holder learns of them too late. A row lock held by the holder: a
// transaction open as long as the lease. Polling every 10 ms: 5 ms of handoff,
// and starving waiters.

const (
	// Pauses of a waiter that polls.
	pollFrom, pollTo = 15 * time.Millisecond, 45 * time.Millisecond
	// slowerPolls is how often such a pause doubles where all waiters poll.
	slowerPolls = 3
)

// queue is the place in which waiters stand and sleep.
type queue struct {
	*link
	enters    batcher // of waiters that have no connection to wait on
	signs     signs
	owners    *owners
	contended kit.Recent[string, struct{}] // locks that are waited for, see Backend.rows
	foreign   sync.Once                    // a waiter of another account was met
}

// Wait is one statement that enters the queue, and one that ends with a
// notification or when it is time to ask anyway, and on MySQL one that reads the
// grant. MariaDB gets all as one block.
//
// Note: for MySQL, which knows no blocks, both in one packet would save a trip.
// But a KILL QUERY that comes between two statements of a packet drops the second
// one without a reply (seen with MariaDB 10.11; MySQL's loop over a packet's
// statements reads the same), and the waiter hangs until its deadline. The same
// goes for its sleep and the reading of the grant, although a KILL QUERY in the
// sleep lets MySQL 9 go on: one that comes to a sleep that is over does not.
func (q *queue) Wait(ctx context.Context, r driver.Request, most time.Duration) (none driver.Grant, _ error) {
	if err := ready(ctx, r); err != nil {
		return none, err
	}
	o := q.owners.begin(r.Owner)
	if o == nil {
		return none, fmt.Errorf("mysql: wait for %q: %w", r.Name, driver.ErrWithdrawn)
	}
	q.contended.Put(r.Name, struct{}{})
	type result struct {
		grant driver.Grant
		err   error
	}
	done := make(chan result, 1)
	started := q.background.Go(func() {
		g, err := q.wait(ctx, o, r, most)
		q.owners.end(o, true, err != nil && !errors.Is(err, driver.ErrNotSent) && !errors.Is(err, driver.ErrWithdrawn))
		done <- result{g, err}
	})
	if !started {
		q.owners.end(o, false, false)
		return none, driver.ErrClosed
	}
	var got result
	select {
	case got = <-done:
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	switch {
	case q.background.Err() != nil:
		return none, driver.ErrClosed
	case got.err != nil && ctx.Err() != nil:
		return none, ctx.Err()
	}
	return got.grant, conn.StatementError("wait for", r.Name, got.err)
}

// wait outlives its caller: a sleep that is over for him is ended by KILL QUERY,
// for the server would not notice that its client is gone, and the connection
// is kept.
func (q *queue) wait(ctx context.Context, o *owner, r driver.Request, most time.Duration) (none driver.Grant, _ error) {
	left := q.owners.leaving(o)
	sctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), most+q.opts.RequestTimeout, errSlow)
	defer cancel()
	defer context.AfterFunc(q.background, cancel)()
	if q.noSleep() {
		if err := q.enter(ctx, r); err != nil {
			return none, err
		}
		return none, poll(ctx, left, nil, most, pollPause()<<min(o.polls.Add(1)-1, slowerPolls))
	}
	lock, tried, err := q.signs.begin(q.link)
	if tried != nil || !q.waits.Ready() {
		// The waiter enters the queue without waiting for a new connection.
		if err := q.enter(ctx, r); err != nil {
			return none, err
		}
	}
	if tried != nil && err == nil {
		_ = poll(ctx, left, tried, most, statement.SignEvery) // for which its entry is a sign
		lock, tried, err = q.signs.begin(q.link)
	}
	if tried != nil {
		return none, err
	}
	s, err := q.waits.TryGet(ctx)
	if err != nil {
		return none, err
	}
	if s == nil {
		return none, poll(ctx, left, nil, most, pollPause())
	}
	defer q.waits.Put(s)
	r.TTL = q.span(r)
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
		case <-left:
		case <-over:
			return
		}
		if err := q.kill(q.background, s); err != nil {
			q.opts.Logger.Debug("mysql: waking a waiter that gave up", "err", err)
		}
	}()
	gaveUp := func() bool { return ctx.Err() != nil || o.leaves.Load() }
	g, withdrawn, woken, err := q.sleep(sctx, s, lock, r, most, gaveUp)
	close(over)
	<-watched // a KILL must not meet what the connection does next
	switch {
	case withdrawn:
		return none, fmt.Errorf("mysql: wait for %q: %w", r.Name, driver.ErrWithdrawn)
	case woken:
		return g, nil
	case conn.Number(err) == conn.ErNoSuchTable: // nothing is held
		return none, nil
	case errors.Is(err, sqldriver.ErrBadConn):
		return none, conn.NotSent(err)
	}
	return none, err
}

// sleep enters the queue and sleeps, for its first span at a time, which bounds for
// how long it is missed if its wake-up is lost, or the waiter before it: then it looks
// whether the lock is free. It reports whether r's owner has a tombstone, and whether
// it was interrupted, and then what the store has granted to r's owner, if anything:
// GET_LOCK is NULL then, or SLEEP 1, unless it is an error.
func (q *queue) sleep(ctx context.Context, s *conn.Session, lock string, r driver.Request, most time.Duration, gaveUp func() bool) (g driver.Grant, withdrawn, woken bool, err error) {
	for end := time.Now().Add(most); ; {
		piece := max(min(time.Until(end), q.signs.distance.FirstSpan()), 0).Truncate(time.Microsecond)
		sleep := statement.Sleep(q.table, r, piece)
		if lock != "" {
			sleep = statement.EnterAndSleep(q.table, lock, q.signs.by(), r, s.WakeID, piece)
		} else if _, _, err := s.Exec(ctx, statement.Enter(q.table, q.signs.by(), r, s.WakeID)); err != nil {
			return g, false, conn.RolledBack(err), err
		}
		again, sent, began := false, time.Now(), int64(0)
		read := func(v []sqldriver.Value) error {
			if len(v) == 2 {
				if woken && !gaveUp() && statement.Fits(r) {
					g = granted(r, sent, conn.Uint(v[0]), time.Duration(conn.Int(v[1])-began)*time.Microsecond)
				}
				return nil
			}
			slept := time.Duration(conn.Int(v[1])) * time.Microsecond
			withdrawn, again, began = slept < 0, slept > 0 && slept >= piece, conn.Int(v[2])
			switch {
			case lock == "":
				woken = conn.Uint(v[0]) == 1
			case v[0] == nil:
				woken = true
			case conn.Uint(v[0]) == 1:
				s.Broken = true // it has the lock now, and must not keep it
				q.signs.lost(lock)
			}
			return nil
		}
		if err = s.Query(ctx, sleep, read); err == nil && woken && lock == "" {
			err = s.Query(ctx, statement.Granted(q.table, r), read)
		}
		woken = woken || conn.RolledBack(err)
		if err != nil || woken || !again || s.Broken || gaveUp() || time.Until(end) <= 0 {
			return g, withdrawn, woken, err
		}
	}
}

// granted returns the store's own grant to r's owner, for r's TTL. end is when it ends,
// counted from when the server began the statement sent at sent. A grant from the future
// shows that the server's clock was turned forward, and does not count; the waiter asks.
func granted(r driver.Request, sent time.Time, token uint64, end time.Duration) driver.Grant {
	made := sent.Add(end - r.TTL)
	if made.After(time.Now()) {
		return driver.Grant{}
	}
	return driver.Grant{Token: token, Sent: made, For: r.TTL}
}

// span is how long the store is to grant r by itself.
func (q *queue) span(r driver.Request) time.Duration { return min(r.TTL, q.signs.distance.FirstSpan()) }

// enter gives a queue entry to a waiter without a connection. When ctx ends it
// still waits for the statement sent, and r's owner is busy until then.
func (q *queue) enter(ctx context.Context, r driver.Request) error {
	r.TTL = q.span(r)
	p := q.enters.send(ctx, newOperation(r))[0]
	if p.Wait(ctx) == kit.NotSent {
		return conn.NotSent(ctx.Err())
	}
	p.Wait(context.Background())
	return p.result.Err
}

func (q *queue) runEnters(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	_, _, err := s.Exec(ctx, statement.Enter(q.table, q.signs.by(), ops[0].Request, statement.NoWakeID))
	return make([]driver.Result, 1), nil, err
}

// noSleep reports whether waiters cannot sleep in the server, because GET_LOCK is
// refused.
func (q *queue) noSleep() bool {
	s := q.server.Load()
	return s != nil && s.NoLocks != nil
}

func pollPause() time.Duration { return pollFrom + rand.N(pollTo-pollFrom) }

// poll is for waiters that found no connection to wait on. They check from time to
// time, after a pause, whether it is their turn, and also when a connection is found.
func poll(ctx context.Context, left, found <-chan struct{}, most, after time.Duration) error {
	pause := time.NewTimer(min(most, after))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-left:
		return nil
	case <-found:
		return nil
	case <-ctx.Done():
		return nil
	}
}

// next is called with the reply of a statement that has freed name, see
// [statement.Look]: it wakes the waiter, or grants the lock to the first that lives,
// and takes those out of the queue that do not. It runs on the
// connection that has freed the lock, before the caller knows: a plugin whose
// host has died ends as soon as it knows that it has released everything.
//
// A request that finds the lock free meanwhile does the same first, and no owner takes it earlier.
func (q *queue) next(ctx context.Context, s *conn.Session, name string, reply uint64) {
	err := q.grant(ctx, s, name, reply)
	if err != nil && q.background.Err() == nil {
		// The lock is free all the same, and waiters wake by themselves.
		q.opts.Logger.Warn("mysql: granting a lock to its next waiter", "name", name, "err", err)
	}
}

func (q *queue) grant(ctx context.Context, s *conn.Session, name string, reply uint64) (err error) {
	for reply == statement.Look {
		q.contended.Put(name, struct{}{})
		var found int64
		if found, reply, err = s.Exec(ctx, statement.GrantNext(q.table, name)); err != nil || found == 0 {
			return err
		}
	}
	if reply <= statement.Look {
		return nil // no waiter must be woken
	}
	_, _, err = s.Exec(ctx, conn.Kill(reply))
	switch conn.Number(err) {
	case conn.ErNoSuchThread: // the waiter's connection is gone, and it asks
		return nil
	case conn.ErKillDenied:
		q.foreign.Do(func() {
			q.opts.Logger.Warn("mysql: waiters of another account cannot be woken and ask twice a second", "err", err)
		})
		return nil
	}
	return err
}
