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
	"github.com/lockbench/lockbench/plugins/internal/batch"
	"github.com/lockbench/lockbench/plugins/internal/recent"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Waiters stand in the queue column of the row, and sleep in the server (see
// sleepLock), each on a connection of its own. A connection has a wake id: a
// GET_LOCK of a random name, which no other takes. Whoever frees the row reads
// the wake id of the first waiter in the same statement, and notifies it: it looks
// the owner up (IS_USED_LOCK) and interrupts what runs there (KILL QUERY). The
// uncontended path pays nothing for all that.
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
	// how long it is missed if its notification is lost.
	longestSleep = 5 * time.Second
)

// queue is where waiters stand and sleep.
type queue struct {
	*link
	enters    batcher // of those that have no connection to wait on
	sleepLock sleepLock
	owners    *owners
	contended recent.Map[string, struct{}] // locks that are waited for, see Backend.rows
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
	done := make(chan error, 1)
	started := q.background.Go(func() {
		err := q.wait(ctx, o, r, min(most, longestSleep))
		q.owners.end(o, true, err != nil && !errors.Is(err, driver.ErrNotSent) && !errors.Is(err, driver.ErrWithdrawn))
		done <- err
	})
	if !started {
		q.owners.end(o, false, false)
		return none, driver.ErrClosed
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case q.background.Err() != nil:
		return none, driver.ErrClosed
	case err != nil && ctx.Err() != nil:
		return none, ctx.Err()
	}
	return none, conn.StatementError("wait for", r.Name, err)
}

// wait outlives its caller: a sleep that is over for him is ended by KILL QUERY,
// for the server would not notice that its client is gone, and the connection
// is kept.
func (q *queue) wait(ctx context.Context, o *owner, r driver.Request, most time.Duration) error {
	left := q.owners.leaving(o)
	sctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), most+q.opts.RequestTimeout, errSlow)
	defer cancel()
	defer context.AfterFunc(q.background, cancel)()
	if q.noSleep() || !q.waits.Ready() || !q.sleepLock.ready(q.link) {
		// The queue entry must not wait for a connection to be made.
		if err := q.enter(ctx, r); err != nil {
			return err
		}
	}
	if q.noSleep() {
		return poll(ctx, left, most, 1<<min(o.polls.Add(1)-1, slowerPolls))
	}
	lock, err := q.sleepLock.make(q.link)
	if err != nil {
		return err
	}
	s, err := q.waits.TryGet(ctx)
	if err != nil {
		return err
	}
	if s == nil {
		return poll(ctx, left, most, 1)
	}
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
	began := time.Now()
	withdrawn, err := q.sleep(sctx, s, lock, r, most)
	o.woken.Store(time.Since(began) < most)
	close(over)
	<-watched // a KILL must not meet what the connection does next
	if errors.Is(err, sqldriver.ErrBadConn) {
		err = conn.NotSent(err)
	}
	q.waits.Put(s)
	switch {
	case withdrawn:
		return fmt.Errorf("mysql: wait for %q: %w", r.Name, driver.ErrWithdrawn)
	case conn.RolledBack(err), conn.Number(err) == conn.ErNoSuchTable: // notified, or nothing is held
		return nil
	}
	return err
}

// sleep enters the queue and sleeps. It reports whether r's owner has a
// tombstone.
func (q *queue) sleep(ctx context.Context, s *conn.Session, lock string, r driver.Request, most time.Duration) (withdrawn bool, err error) {
	sleep := statement.Sleep(q.table, r, most)
	if lock != "" {
		sleep = statement.EnterAndSleep(q.table, lock, r, s.WakeID, most)
	} else if _, _, err := s.Exec(ctx, statement.Enter(q.table, r, s.WakeID)); err != nil {
		return false, err
	}
	err = s.Query(ctx, sleep, func(v []sqldriver.Value) error {
		withdrawn = conn.Uint(v[1]) == 0
		if lock != "" && conn.Uint(v[0]) == 1 {
			s.Broken = true // it has the lock now, and must not keep it
			q.sleepLock.lost(lock)
		}
		return nil
	})
	return withdrawn, err
}

// enter gives a waiter without a connection of its own a queue entry.
// When ctx ends it waits for what was sent all the same: r's owner is busy until then.
func (q *queue) enter(ctx context.Context, r driver.Request) error {
	p := q.enters.send(ctx, newOperation(r))[0]
	if p.Wait(ctx) == batch.NotSent {
		return conn.NotSent(ctx.Err())
	}
	p.Wait(context.Background())
	return p.result.Err
}

func (q *queue) runEnters(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	_, _, err := s.Exec(ctx, statement.Enter(q.table, ops[0].Request, statement.NoWakeID))
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

// notify wakes the waiter with that wake id, who is the first in the queue of name,
// and takes those out of the queue whose connection is gone. It runs on the
// connection that has freed the lock, before the caller knows: a plugin whose
// host has died ends as soon as it knows that it has released everything.
func (q *queue) notify(ctx context.Context, s *conn.Session, name string, wakeID uint64) {
	for wakeID > statement.NoWakeID {
		_, _, err := s.Exec(ctx, conn.Kill(wakeID))
		switch conn.Number(err) {
		case conn.ErNoSuchThread: // nobody has that wake id any more
			_, wakeID, err = s.Exec(ctx, statement.Evict(q.table, name, wakeID))
		case conn.ErKillDenied:
			q.foreign.Do(func() {
				q.opts.Logger.Warn("mysql: waiters of another account cannot be woken and ask every second", "err", err)
			})
			return
		default:
			wakeID = 0
		}
		if err != nil && q.background.Err() == nil {
			// The lock is free all the same, and the waiter wakes by itself.
			q.opts.Logger.Warn("mysql: waking a waiter", "name", name, "err", err)
			return
		}
	}
}
