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

// A waiter has an entry in the queue column of the lock's row, and runs a sleeping statement on a
// separate connection. Each connection holds a user lock (GET_LOCK) with a random name (its wake
// id). The statement that frees the lock grants it to the first waiter, if that waiter's process
// lives, and returns the waiter's wake id. After the commit, the releasing connection finds the
// session that holds this user lock (IS_USED_LOCK) and interrupts its statement (KILL QUERY). The
// waiter then reads the grant's token and end from the row. On MariaDB the waiter and the releaser
// each send one block of statements. A lock without waiters has none of these costs.
//
// Two owners never hold a lock at once, because a waiter's lease ends before the grant in the row
// ends. The server's clock gives the time from the start of the sleeping statement to the grant's
// end. The waiter counts this time from an earlier instant, when it sent the statement. If the
// server's clock is turned back during the sleep, the lease is shorter. If the clock is turned
// forward, the lease would be longer. But then the grant seems to be made after the reply, so the
// waiter rejects the grant. No crash undoes a grant that a waiter knows of, because the waiter is
// woken after the commit. If a waiter wakes without a KILL, the grant in the row may not be on disk
// yet. In that case the waiter asks for the lock, which needs a commit (see [statement.Confirm]).
// An unused grant to a waiter ends after a first span (0.5 to 2 s, see [kit.Distance]). So a waiter
// that is frozen, or killed just when it is granted the lock, delays the other waiters by a first
// span. The other waiters sleep for at most a first span, and then find the lock free. A release
// skips a waiter whose process gives no signs of life.
//
// Note: four other designs were rejected. If the holder held a user lock named after the lock, each
// lease would need one more round trip and a connection, and a lost machine would keep the lock for
// hours. If the holder took that user lock only when there are waiters, the holder would learn of
// the waiters too late. If the holder held a row lock, a transaction would stay open until the
// lease ends. If waiters polled every 10 ms, a handoff would take 5 ms, and waiters would starve.

const (
	// pollFrom and pollTo are the shortest and the longest pause of a waiter that polls.
	pollFrom, pollTo = 15 * time.Millisecond, 45 * time.Millisecond
	// If the server refuses GET_LOCK, each poll doubles an owner's pause, at most slowerPolls times.
	slowerPolls = 3
)

type queue struct {
	*link
	enters    batcher // puts waiters into the queue without a sleeping statement
	signs     signs
	owners    *owners
	contended kit.Recent[string, struct{}] // locks that have waiters; see Backend.rows
	foreign   sync.Once                    // for the warning about a waiter of another account
}

// Wait sends a statement that puts r's owner into the queue. A second statement sleeps until a
// wake-up, or until the owner should ask for the lock. On MySQL a third statement reads the grant.
// On MariaDB all three statements are one block.
//
// Note: MySQL has no blocks of statements. Sending the first two statements in one packet would
// save a round trip. But if a KILL QUERY comes between them, the server drops the second one
// without a reply, and the waiter would hang until its deadline. This was seen with MariaDB 10.11,
// and MySQL's source has the same loop over the statements of a packet. For the same reason, the
// sleep and the reading of the grant cannot share a packet. MySQL 9 runs the next statement if the
// KILL QUERY comes during the sleep, but not if it comes just after the sleep.
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

// wait does the work of Wait. If Wait's caller gives up, wait ends the sleeping statement by KILL
// QUERY, because the server would not notice that the caller is gone. The connection stays open for
// other waiters.
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
		// Enter the queue over a connection for statements, because dialing a new connection takes long.
		if err := q.enter(ctx, r); err != nil {
			return none, err
		}
	}
	if tried != nil && err == nil {
		_ = poll(ctx, left, tried, most, statement.SignEvery) // its entry counts as a sign
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
	case conn.Number(err) == conn.ErNoSuchTable: // without the table no lock is held
		return none, nil
	case errors.Is(err, sqldriver.ErrBadConn):
		return none, conn.NotSent(err)
	}
	return none, err
}

// The method sleep puts r's owner into the queue and sleeps, for at most a first span (0.5 to 2 s)
// at a time. After each sleep it checks whether the lock is free, because a wake-up may have been
// lost or an earlier waiter may be dead. If the store has granted r's owner the lock, sleep returns
// the grant as g. It reports whether the owner was withdrawn, and whether a KILL interrupted the
// sleep (woken). After a KILL, GET_LOCK returns NULL and SLEEP returns 1, or the statement fails.
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
				s.Broken = true // s now has the user lock, and must not keep it
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

// granted returns the grant that the store made to r's owner, for r's TTL. The parameter sent is
// when the sleeping statement was sent, and end is the time from that statement's start in the
// server to the grant's end. If the grant seems to be made in the future, the server's clock was
// turned forward. In that case granted returns the zero Grant, and the owner asks for the lock.
func granted(r driver.Request, sent time.Time, token uint64, end time.Duration) driver.Grant {
	made := sent.Add(end - r.TTL)
	if made.After(time.Now()) {
		return driver.Grant{}
	}
	return driver.Grant{Token: token, Sent: made, For: r.TTL}
}

// span returns how long the store's grant to r's owner lasts if the owner does not use the grant.
func (q *queue) span(r driver.Request) time.Duration { return min(r.TTL, q.signs.distance.FirstSpan()) }

// enter puts r's owner into the queue, but starts no sleeping statement. It waits for the reply
// even after ctx has ended, because a withdrawal of the owner must also wait for this reply.
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

// noSleep reports whether waiters cannot sleep in the server because the server refuses GET_LOCK.
func (q *queue) noSleep() bool {
	s := q.server.Load()
	return s != nil && s.NoLocks != nil
}

func pollPause() time.Duration { return pollFrom + rand.N(pollTo-pollFrom) }

// poll pauses a waiter that cannot sleep in the server. The pause lasts for the shorter of the
// durations most and after. It ends earlier if the left or found channel is closed, or ctx ends.
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

// The method next handles the reply of a statement that has freed the lock called name; see
// [statement.Look]. It wakes the waiter to which the statement granted the lock. If the statement
// granted the lock to no waiter, next removes dead waiters from the queue and grants the lock to
// the first living waiter. A release returns only after next has returned, because a plugin whose
// host has died exits after its last release.
//
// If an acquire reaches the row before next does, the acquire grants the lock to the first waiter
// (see askInFull). So no owner overtakes the waiters.
func (q *queue) next(ctx context.Context, s *conn.Session, name string, reply uint64) {
	err := q.grant(ctx, s, name, reply)
	if err != nil && q.background.Err() == nil {
		// The release has succeeded despite this error, and waiters wake up after a while anyway.
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
	case conn.ErNoSuchThread: // the waiter's connection is gone, so the waiter will ask for the lock
		return nil
	case conn.ErKillDenied:
		q.foreign.Do(func() {
			q.opts.Logger.Warn("mysql: waiters of another account cannot be woken and ask once a second", "err", err)
		})
		return nil
	}
	return err
}
