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
// the owner up (IS_USED_LOCK) and ends it (KILL QUERY). The waiter reads the row:
// its token, and for how long the grant still lasts. The uncontended path pays
// nothing for all that.
//
// Why two never hold it: the waiter counts what is left, by the server's clock, from
// when it sent the question, which was before the server answered it; so it lets go before
// the server does. No sign of life and no other clock is in that. It is woken only
// after the commit, so that no crash takes the grant back that it knows of; what it would find
// when it wakes by itself may not be on disk yet, and so it asks then, which is a
// commit (see Backend.confirm). A waiter that is frozen, or was killed while it was
// being granted the lock, costs [statement.FirstSpan]: then those behind it, none of which sleeps for
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
	// longestSleep bounds how long a waiter sleeps in the server, and so for
	// how long it is missed if its wake-up is lost, or the waiter before it.
	longestSleep = statement.FirstSpan
)

// queue is where waiters stand and sleep.
type queue struct {
	*link
	enters    batcher // of those that have no connection to wait on
	signs     signs
	owners    *owners
	contended kit.Recent[string, struct{}] // locks that are waited for, see Backend.rows
	foreign   sync.Once                    // a waiter of another account was met
}

// Wait is one statement that enters the queue, and one that ends with a
// notification or when it is time to ask anyway. MariaDB gets both as one block,
// which a notification ends wherever it is.
//
// Note: for MySQL, which knows no blocks, both in one packet would save a trip.
// But a KILL QUERY that comes between two statements of a packet drops the second
// one without a reply (seen with MariaDB 10.11; MySQL's loop over a packet's
// statements reads the same), and the waiter hangs until its deadline.
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
		return none, poll(ctx, left, most, 1<<min(o.polls.Add(1)-1, slowerPolls))
	}
	lock, err := q.signs.begin(q.link) // before it enters, or it is passed over
	if err != nil {
		return none, err
	}
	if !q.waits.Ready() {
		// The queue entry must not wait for a connection to be made.
		if err := q.enter(ctx, r); err != nil {
			return none, err
		}
	}
	s, err := q.waits.TryGet(ctx)
	if err != nil {
		return none, err
	}
	if s == nil {
		return none, poll(ctx, left, most, 1)
	}
	defer q.waits.Put(s)
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
	withdrawn, woken, err := q.sleep(sctx, s, lock, r, most, gaveUp)
	close(over)
	<-watched // a KILL must not meet what the connection does next
	switch {
	case withdrawn:
		return none, fmt.Errorf("mysql: wait for %q: %w", r.Name, driver.ErrWithdrawn)
	case woken && !gaveUp():
		return q.told(sctx, s, r), nil
	case woken, conn.Number(err) == conn.ErNoSuchTable: // ended, or nothing is held
		return none, nil
	case errors.Is(err, sqldriver.ErrBadConn):
		return none, conn.NotSent(err)
	}
	return none, err
}

// told is what a waiter learns that was woken: the store's own grant, or none, so
// that it asks.
func (q *queue) told(ctx context.Context, s *conn.Session, r driver.Request) (g driver.Grant) {
	if !statement.Fits(r) {
		return g
	}
	span, sent := min(r.TTL, statement.FirstSpan), time.Now()
	err := s.Query(ctx, statement.Granted(q.table, r), func(v []sqldriver.Value) error {
		// A clock that was turned back since has lengthened the grant.
		left := min(time.Duration(conn.Int(v[1]))*time.Microsecond, span)
		g = driver.Grant{Token: conn.Uint(v[0]), Sent: sent.Add(left - span), For: span}
		return nil
	})
	if err != nil {
		return driver.Grant{}
	}
	return g
}

// sleep enters the queue and sleeps, for [longestSleep] at a time: then it looks
// whether the lock is free. It reports whether r's owner has a tombstone, and whether
// it was interrupted: GET_LOCK is NULL then, or SLEEP 1, unless it is an error.
func (q *queue) sleep(ctx context.Context, s *conn.Session, lock string, r driver.Request, most time.Duration, gaveUp func() bool) (withdrawn, woken bool, err error) {
	for end := time.Now().Add(most); ; {
		piece := max(min(time.Until(end), longestSleep), 0).Truncate(time.Microsecond)
		sleep := statement.Sleep(q.table, r, piece)
		if lock != "" {
			sleep = statement.EnterAndSleep(q.table, q.signs.process, lock, r, s.WakeID, piece)
		} else if _, _, err := s.Exec(ctx, statement.Enter(q.table, q.signs.process, r, s.WakeID)); err != nil {
			return false, conn.RolledBack(err), err
		}
		again := false
		err = s.Query(ctx, sleep, func(v []sqldriver.Value) error {
			slept := time.Duration(conn.Int(v[1])) * time.Microsecond
			withdrawn, again = slept < 0, slept > 0 && slept >= piece
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
		})
		woken = woken || conn.RolledBack(err)
		if err != nil || woken || !again || s.Broken || gaveUp() || time.Until(end) <= 0 {
			return withdrawn, woken, err
		}
	}
}

// enter gives a waiter without a connection of its own a queue entry.
// When ctx ends it waits for what was sent all the same: r's owner is busy until then.
func (q *queue) enter(ctx context.Context, r driver.Request) error {
	p := q.enters.send(ctx, newOperation(r))[0]
	if p.Wait(ctx) == kit.NotSent {
		return conn.NotSent(ctx.Err())
	}
	p.Wait(context.Background())
	return p.result.Err
}

func (q *queue) runEnters(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	_, _, err := s.Exec(ctx, statement.Enter(q.table, q.signs.process, ops[0].Request, statement.NoWakeID))
	return make([]driver.Result, 1), nil, err
}

// noSleep reports whether waiters cannot sleep in the server, because GET_LOCK is
// refused.
func (q *queue) noSleep() bool {
	s := q.server.Load()
	return s != nil && s.NoLocks != nil
}

// poll is for waiters that found no connection to wait on: they look from time
// to time whether it is their turn, after the given number of pauses.
func poll(ctx context.Context, left <-chan struct{}, most time.Duration, times time.Duration) error {
	pause := time.NewTimer(min(most, times*(pollFrom+rand.N(pollTo-pollFrom))))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-left:
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
// Whoever finds the lock free meanwhile does the same, and nobody takes it before.
func (q *queue) next(ctx context.Context, s *conn.Session, name string, reply uint64) {
	err := q.grant(ctx, s, name, reply)
	if err != nil && q.background.Err() == nil {
		// The lock is free all the same, and waiters wake by themselves.
		q.opts.Logger.Warn("mysql: granting a lock to its next waiter", "name", name, "err", err)
	}
}

func (q *queue) grant(ctx context.Context, s *conn.Session, name string, reply uint64) (err error) {
	for silent := ""; reply == statement.Look; {
		q.contended.Put(name, struct{}{})
		var found int64
		if found, reply, err = s.Exec(ctx, statement.GrantNext(q.table, name, silent)); err != nil || found == 0 {
			return err
		}
		if reply == statement.Look {
			if silent, err = q.silent(ctx, s, name); err != nil {
				return err
			}
		}
	}
	if reply <= statement.Look {
		return nil // nobody is to be woken
	}
	_, _, err = s.Exec(ctx, conn.Kill(reply))
	switch conn.Number(err) {
	case conn.ErNoSuchThread: // its connection is gone, and it asks
		return nil
	case conn.ErKillDenied:
		q.foreign.Do(func() {
			q.opts.Logger.Warn("mysql: waiters of another account cannot be woken and ask twice a second", "err", err)
		})
		return nil
	}
	return err
}

// silent returns the entries in the queue of name before the first one whose process
// lives.
func (q *queue) silent(ctx context.Context, s *conn.Session, name string) (entries string, err error) {
	var queue []statement.Entry
	err = s.Query(ctx, statement.Inspect(q.table, name), func(v []sqldriver.Value) error {
		queue = statement.Read(v).Entries()
		return nil
	})
	if err != nil || len(queue) == 0 {
		return "", err
	}
	processes := make([]string, len(queue))
	for i, e := range queue {
		processes[i] = e.Process
	}
	err = s.Query(ctx, statement.Alive(processes), func(v []sqldriver.Value) error {
		for i, connection := range v {
			if connection != nil {
				break
			}
			entries += queue[i].Text
		}
		return nil
	})
	return entries, err
}
