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

// Waiters are in the queue column of the row, and sleep in the server (see signs), each on
// its own connection. A connection has a wake id: it holds a user lock (GET_LOCK) of a
// random name that no other connection takes. The statement that frees the row grants the
// lock to the first waiter whose process lives, and reads the waiter's wake id. After the
// commit, the same connection finds the session that holds that user lock (IS_USED_LOCK)
// and interrupts its statement (KILL QUERY). The waiter then reads the grant's token and
// end from the row. On MariaDB one block does all of this, so that the reply to the
// waiter's statement brings the grant. A lock without waiters has no such costs.
//
// This is why two owners never hold a lock at once. The server's clock measures the time from the
// start of the sleeping statement to the end of the grant. The waiter counts that time from when it
// sent the statement, which was before that start. So its lease ends before the server's grant. No
// sign of life and no other clock matters. A server clock that is turned back in between shortens
// the waiter's time. A clock that is turned forward lengthens it; the waiter notices if the grant
// would be younger than the reply. The waiter is woken only after the commit, so no crash undoes a
// grant that it knows of. If the waiter wakes without a KILL, the grant that it finds may not be on
// disk yet, so it asks for the lock, which needs a commit (see [statement.Confirm]). A waiter that
// is frozen, or was killed while the lock was being granted to it, costs the other waiters its
// first span (see [kit.Distance]). None of them sleeps for longer. Then they find the lock free,
// and the first waiter gets it. The waiter of a silent process (see signs) is passed over.
//
// Note: four other designs were rejected. If the holder holds a user lock of
// the lock's name, each lease needs one more round trip and a connection, and a
// lost machine keeps the lock for hours. If it takes the user lock only when
// there are waiters, it learns of them too late. If it holds a row lock, a
// transaction stays open as long as the lease. If waiters poll every 10 ms, a
// handoff takes 5 ms, and waiters starve.

const (
	// pollFrom and pollTo bound the pause of a waiter that polls.
	pollFrom, pollTo = 15 * time.Millisecond, 45 * time.Millisecond
	// slowerPolls is how many times the pause doubles where all waiters poll.
	slowerPolls = 3
)

// queue is where waiters enter the queues of locks, and sleep.
type queue struct {
	*link
	enters    batcher // for waiters that have no connection to wait on
	signs     signs
	owners    *owners
	contended kit.Recent[string, struct{}] // locks that have waiters; see Backend.rows
	foreign   sync.Once                    // for the warning about a waiter of another account
}

// Wait sends a statement that enters the queue, and a second statement that
// returns at a wake-up, or when it is time to ask for the lock. MySQL needs a
// third statement, which reads the grant; MariaDB gets all three in one block.
//
// Note: for MySQL, which has no such blocks, both statements in one packet would save a
// round trip. But a KILL QUERY that comes between two statements of a packet drops the
// second statement without a reply (seen with MariaDB 10.11; MySQL's loop over a packet's
// statements reads the same). The waiter then hangs until its deadline. For the same reason
// the sleep and the reading of the grant cannot share a packet. MySQL 9 does go on after a
// KILL QUERY during the sleep, but not after a KILL QUERY just after the sleep.
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

// wait goes on when its caller has returned. It ends the caller's sleep by KILL
// QUERY, because the server would not notice that the client is gone. The
// connection is kept.
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
		_ = poll(ctx, left, tried, most, statement.SignEvery) // its queue entry is a sign for so long
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
	<-watched // the KILL must not hit the connection's next statement
	switch {
	case withdrawn:
		return none, fmt.Errorf("mysql: wait for %q: %w", r.Name, driver.ErrWithdrawn)
	case woken:
		return g, nil
	case conn.Number(err) == conn.ErNoSuchTable: // no lock is held
		return none, nil
	case errors.Is(err, sqldriver.ErrBadConn):
		return none, conn.NotSent(err)
	}
	return none, err
}

// sleep enters the queue and sleeps for one first span at a time. After each span it
// checks whether the lock is free, because its wake-up, or the waiter before it, may be
// lost. sleep returns the store's grant to r's owner, if there is one, whether the
// owner has a tombstone, and whether the sleep was interrupted. An interrupted GET_LOCK
// returns NULL, and an interrupted SLEEP returns 1, unless they fail.
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
				s.Broken = true // s now has the lock, and must not keep it
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

// granted returns the grant that the store made to r's waiting owner, for r's TTL.
// end is when the grant ends, counted from when the server began the statement that
// was sent at sent. If the grant seems to be made in the future, the server's clock
// was turned forward. Then granted returns the zero Grant, and the waiter asks.
func granted(r driver.Request, sent time.Time, token uint64, end time.Duration) driver.Grant {
	made := sent.Add(end - r.TTL)
	if made.After(time.Now()) {
		return driver.Grant{}
	}
	return driver.Grant{Token: token, Sent: made, For: r.TTL}
}

// span returns how long the store's grant to the waiter r may last at first.
func (q *queue) span(r driver.Request) time.Duration { return min(r.TTL, q.signs.distance.FirstSpan()) }

// enter gives a queue entry to a waiter without a connection. Even after ctx has
// ended, it waits for the answer, because until then r's owner counts as busy.
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

// noSleep reports whether waiters cannot sleep in the server because it refuses
// GET_LOCK.
func (q *queue) noSleep() bool {
	s := q.server.Load()
	return s != nil && s.NoLocks != nil
}

func pollPause() time.Duration { return pollFrom + rand.N(pollTo-pollFrom) }

// poll waits on behalf of a waiter that has no connection to sleep on. It returns after a pause,
// or earlier when left or found is closed or ctx ends. Then the waiter asks whether it is its turn.
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

// next is called with the reply of a statement that has freed the lock called
// name; see [statement.Look]. It wakes the waiter that was granted the lock, or
// grants the lock to the first living waiter and removes dead waiters from the
// queue. It runs before the caller gets its result, because a plugin whose host
// has died ends as soon as it knows that it has released everything.
//
// An acquire that finds the lock free in the meantime first grants it to the
// first waiter, so no owner overtakes the waiters.
func (q *queue) next(ctx context.Context, s *conn.Session, name string, reply uint64) {
	err := q.grant(ctx, s, name, reply)
	if err != nil && q.background.Err() == nil {
		// The lock is free despite the error, and waiters also wake without being woken.
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
		return nil // there is no waiter to wake
	}
	_, _, err = s.Exec(ctx, conn.Kill(reply))
	switch conn.Number(err) {
	case conn.ErNoSuchThread: // the waiter's connection is gone, so it will ask
		return nil
	case conn.ErKillDenied:
		q.foreign.Do(func() {
			q.opts.Logger.Warn("mysql: waiters of another account cannot be woken and ask twice a second", "err", err)
		})
		return nil
	}
	return err
}
