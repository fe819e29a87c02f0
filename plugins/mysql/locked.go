package mysql

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Another client, such as an operator at a console, may keep a row locked for long. Operations on
// other rows must not wait for that row. So the backend kills a statement that waits for a locked
// row, and sends its operations on unlocked rows again. Operations on locked rows wait in this
// process, which regularly queries whether the rows are still locked. A few statements may wait in
// the server, each for one row, because the server's queue is fair.
//
// A transaction that asks for a missing row locks the gap between the rows around it. An INSERT
// into the gap waits, and no query can predict that. So after a kill, operations on missing rows
// get a separate statement. If that statement is killed too, each of its operations is sent alone,
// again and again, and killed if it waits.

const (
	// If a statement takes longer than slowAfter, the backend assumes that it waits for a locked row,
	// because a commit takes far less time. A statement of renewals gets an eighth of the time until
	// their deadline, at most slowestAfter. If this time were shorter, a busy server would get every
	// renewal twice. A second statement for existing rows that were not locked gets slowestAfter.
	slowAfter     = 50 * time.Millisecond
	slowestAfter  = 500 * time.Millisecond
	patientShares = 8
	// blockedFor is the shortest pause between two checks of locked rows.
	blockedFor = 25 * time.Millisecond
	// After a check of locked rows, the pause is at least blockedRests times as long as the check.
	blockedRests = 3
	// lookAtOnce is the largest number of rows that one query reads.
	lookAtOnce = 500
)

// slotsOf returns how many connections of a pool may wait for locked rows at the same time.
// probesOf returns how many connections may test whether an INSERT would wait for a locked gap.
func slotsOf(connections int) int  { return max(1, connections/8) }
func probesOf(connections int) int { return max(1, connections/4) }

// errKilled means that the statement was killed because it waited for a row.
var errKilled = errors.New("statement was killed")

func (l *batcher) timeout(t *inFlight, batch []*pending) time.Duration {
	if t.trip == sure {
		return slowestAfter
	}
	deadline, limited := batch[0].ctx.Deadline()
	if !l.patient || !limited {
		return slowAfter
	}
	return min(max(slowAfter, time.Until(deadline)/patientShares), slowestAfter)
}

// trip says what the sender of a statement knows about the rows of the statement's operations.
type trip int

const (
	first trip = iota
	sure       // the statement's rows exist, and none of them was locked
	probe      // the statement's rows do not exist, and may be in a locked gap
)

// inFlight is a statement that a batcher has sent to the server.
type inFlight struct {
	batcher *batcher
	many    bool
	trip    trip
	killed  atomic.Bool

	mu    sync.Mutex // also delays the next use of s until a KILL of the statement is over
	s     *conn.Session
	since time.Time     // when the statement began on s
	yield func()        // lets another sender take this one's place in the batcher; nil if it has none
	place chan struct{} // slots or probes if the statement has a place in that channel, otherwise nil
	over  bool
}

// The on method records that the statement runs on the session s. A nil s means that it has ended.
func (t *inFlight) on(s *conn.Session) {
	t.mu.Lock()
	t.s, t.since = s, time.Now()
	t.mu.Unlock()
}

// end records that the statement is over, so that the method slow no longer kills it.
func (t *inFlight) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.place != nil {
		<-t.place
		t.place = nil
	}
}

// The method slow runs when the statement t takes longer than its timeout. It lets the batcher send
// another statement. If t has one operation, is not a probe and gets a slot, t goes on. Otherwise
// slow kills t.
//
// On MySQL, which has no RETURNING, an acquire consists of two statements. If the KILL comes
// exactly between these statements, the server sends no reply. Then reading the reply fails at its
// deadline, and the outcome of the batch is unknown.
//
// Note: a SELECT with FOR UPDATE SKIP LOCKED before each batch would find locked rows without a
// KILL, but would cost every batch a second round trip.
func (t *inFlight) slow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	l := t.batcher
	if t.yield != nil {
		t.yield()
	}
	if t.s == nil {
		return
	}
	l.link.pool.Question(t.since) // the statement may wait for a row, or for a server that is gone
	if !t.many && t.trip != probe && t.take(l.slots) {
		return
	}
	t.killed.Store(true)
	if err := l.link.kill(l.link.background, t.s); err != nil {
		l.link.opts.Logger.Debug("mysql: killing a statement that waits for a row lock", "err", err)
	}
}

// If t has no place, take tries to get one in places. It reports whether t then has a place.
func (t *inFlight) take(places chan struct{}) bool {
	if t.place != nil {
		return true
	}
	select {
	case places <- struct{}{}:
		t.place = places
	default:
	}
	return t.place != nil
}

// kill interrupts the statement that runs on target. If the server refuses GET_LOCK, kill does
// nothing, and the server ends the statement's lock wait after a second.
func (k *link) kill(ctx context.Context, target *conn.Session) error {
	if target.WakeID == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.opts.RequestTimeout)
	defer cancel()
	s, err := k.pool.GetKill(ctx)
	if err != nil {
		return err
	}
	defer k.pool.Put(s)
	if _, _, err = s.Exec(ctx, conn.Kill(target.WakeID)); conn.Number(err) == conn.ErNoSuchThread {
		err = nil // the target and its statement are gone
	}
	return err
}

// resendUnlocked handles the operations of a killed statement. If t.trip is first, it sends again
// each operation whose row is not locked. It adds all other operations to l.blocked.
func (l *batcher) resendUnlocked(t *inFlight, batch []*pending) {
	for _, p := range batch {
		p.kills++
	}
	if t.trip != first {
		l.blocked.add(l.link, batch)
		return
	}
	locked, err := l.link.locked(batch)
	if err != nil {
		refuseAll(batch, conn.NotSent(err))
		return
	}
	var free, absent, rest []*pending
	for _, p := range batch {
		switch isLocked, there := locked[p.Name]; {
		case isLocked:
			rest = append(rest, p)
		case there || l.probes == nil:
			free = append(free, p)
		default:
			absent = append(absent, p)
		}
	}
	l.blocked.add(l.link, rest)
	l.resend(sure, free)
	l.resend(probe, absent)
}

func (l *batcher) resend(why trip, batch []*pending) {
	if len(batch) > 0 {
		l.try(&inFlight{batcher: l, many: len(batch) > 1, trip: why}, batch)
	}
}

// locked says for each existing row of the operations ps whether another client has locked it.
func (k *link) locked(ps []*pending) (map[string]bool, error) {
	ctx, cancel := k.statement(k.background)
	defer cancel()
	all := make([]string, len(ps))
	for i, p := range ps {
		all[i] = p.Name
	}
	slices.Sort(all)
	all = slices.Compact(all)
	found := make(map[string]bool, len(all))
	err := k.on(ctx, k.pool.GetKill, func(ctx context.Context, s *conn.Session) error {
		clear(found)
		for some := range slices.Chunk(all, lookAtOnce) {
			for _, free := range []bool{false, true} {
				err := s.Query(ctx, statement.Locked(k.table, some, free), func(v []sqldriver.Value) error {
					found[conn.String(v[0])] = !free
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return found, err
}

// blockedOps wait because another client has locked their row, or the gap for their new row.
type blockedOps struct {
	mu      sync.Mutex
	waiting []*pending
	running bool
}

func (k *blockedOps) add(b *link, ps []*pending) {
	if len(ps) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = append(k.waiting, ps...)
	if !k.running {
		k.running = b.background.Go(func() { k.run(b) })
	}
	if !k.running {
		refuseAll(k.waiting, driver.ErrClosed)
		k.waiting = nil
	}
}

func (k *blockedOps) run(b *link) {
	pause := time.NewTimer(blockedFor)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-b.background.Done():
		}
		k.mu.Lock()
		todo := k.waiting
		k.waiting = nil
		running := len(todo) > 0 && b.background.Err() == nil
		k.running = running
		k.mu.Unlock()
		if !running {
			refuseAll(todo, driver.ErrClosed)
			return
		}
		began := time.Now()
		rest := k.look(b, todo)
		pause.Reset(max(blockedFor, blockedRests*time.Since(began))) // a check of many rows takes long
		k.mu.Lock()
		k.waiting = append(rest, k.waiting...)
		k.mu.Unlock()
	}
}

// look sends the operations whose row is not locked. While slots has room, it sends operations on
// locked rows, each alone and the oldest first. While probes has room, it sends operations that
// insert rows, each alone and the least often killed first. It returns those that still wait.
func (k *blockedOps) look(b *link, todo []*pending) (rest []*pending) {
	var wanted []*pending
	for _, p := range todo {
		switch {
		case p.GivenUp():
		case p.ctx.Err() != nil:
			p.refuse(conn.NotSent(p.ctx.Err()))
		case time.Since(p.since) > b.opts.RequestTimeout:
			p.refuse(conn.NotSent(fmt.Errorf("%s %q: another transaction keeps the row locked, or the place where it would be", p.batcher.what, p.Name)))
		default:
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	locked, err := b.locked(wanted)
	if err != nil {
		refuseAll(wanted, conn.NotSent(err))
		return nil
	}
	var absent []*pending
	free := map[*batcher][]*pending{}
	for _, p := range wanted {
		switch isLocked, there := locked[p.Name]; {
		case isLocked:
			rest = p.tryAlone(&inFlight{batcher: p.batcher}, p.batcher.slots, rest)
		case there || p.batcher.probes == nil:
			free[p.batcher] = append(free[p.batcher], p)
		default:
			absent = append(absent, p)
		}
	}
	slices.SortStableFunc(absent, func(p, q *pending) int { return cmp.Compare(p.kills, q.kills) })
	for _, p := range absent {
		rest = p.tryAlone(&inFlight{batcher: p.batcher, trip: probe}, p.batcher.probes, rest)
	}
	for l, ps := range free {
		l.enter(ps)
	}
	return rest
}

// tryAlone sends p in a separate statement if places has room. Otherwise it appends p to rest.
func (p *pending) tryAlone(t *inFlight, places chan struct{}, rest []*pending) []*pending {
	if !t.take(places) || !p.batcher.link.background.Go(func() { p.batcher.try(t, []*pending{p}) }) {
		t.end()
		return append(rest, p)
	}
	return rest
}
