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

// Another client, such as a foreign transaction or an operator at a console, may
// keep a row locked for long. An operation on such a row must not delay others, so
// it does not wait on a connection. Its statement is killed, and the statement's
// operations on free rows are sent again. Its operations on locked rows wait here,
// and one query checks all their rows from time to time. A few statements for one
// row may still wait in the server, because its queue is fair.
//
// A gap between rows can be locked too, by a transaction that has asked for a row that does not
// exist. Inserting a new row into the gap waits, and no query can predict that. So operations on
// new rows are sent again separately from operations on existing rows. If the statement for new
// rows is killed too, each of its operations is sent alone, for a short time, again and again.

const (
	// slowAfter is after how long a statement is assumed to wait for a row that
	// another client keeps locked, because commits take far less time. Renewals
	// are not urgent: they wait for an eighth of the time that their callers
	// allow, up to half of the server's lock wait, so that a server that is
	// only busy is not flooded by repeated statements. Operations sent again
	// although no row was locked also get slowestAfter.
	slowAfter     = 50 * time.Millisecond
	slowestAfter  = 500 * time.Millisecond
	patientShares = 8
	// blockedFor is the least time between two checks of locked rows.
	blockedFor = 25 * time.Millisecond
	// blockedRests is the least pause after a check, in multiples of the check's duration.
	blockedRests = 3
	// lookAtOnce is the most names that one query reads.
	lookAtOnce = 500
)

// slotsOf returns how many statements of a pool may wait for a row in the
// server. probesOf returns how many may test whether an insert has to wait.
func slotsOf(connections int) int  { return max(1, connections/8) }
func probesOf(connections int) int { return max(1, connections/4) }

// errKilled means that the statement was killed because it waited for a row.
var errKilled = errors.New("statement was killed")

// timeout returns how long a statement for batch may take.
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

// trip says why a statement is sent.
type trip int

const (
	first trip = iota
	sure       // its rows exist, and none of them was locked
	probe      // its rows do not exist, and may be in a locked gap
)

// inFlight is a statement that a batcher has sent to the server.
type inFlight struct {
	batcher *batcher
	many    bool
	trip    trip
	killed  atomic.Bool

	mu    sync.Mutex // also keeps the session from being used again during a KILL
	s     *conn.Session
	since time.Time     // when the statement began on s
	yield func()        // lets another sender take its place in the batcher; nil if it has none
	place chan struct{} // slots or probes of the batcher if it has a place there, else nil
	over  bool
}

// on notes the session on which the statement runs, or nil when it has ended.
func (t *inFlight) on(s *conn.Session) {
	t.mu.Lock()
	t.s, t.since = s, time.Now()
	t.mu.Unlock()
}

// end keeps slow from acting on a statement that is over.
func (t *inFlight) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.place != nil {
		<-t.place
		t.place = nil
	}
}

// slow is called for a statement that takes long. It lets another sender take its place in the
// batcher. It kills the statement, unless it is for a single existing row and a slot is free.
//
// On a server without RETURNING, an acquire is two statements, and a KILL that
// comes exactly between them drops the reply (see Wait). The connection then
// runs into its deadline, and the outcome of the batch remains unknown.
//
// Note: SELECT ... FOR UPDATE SKIP LOCKED before each batch would find locked
// rows without a KILL, but it would cost every batch a second round trip.
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
	l.link.pool.Question(t.since) // it may wait for a row, or for an unreachable server
	if !t.many && t.trip != probe && t.take(l.slots) {
		return
	}
	t.killed.Store(true)
	if err := l.link.kill(l.link.background, t.s); err != nil {
		l.link.opts.Logger.Debug("mysql: killing a statement that waits for a row lock", "err", err)
	}
}

// take takes a place if one is free, and reports whether the statement now has a place.
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

// kill ends what runs on target. Where GET_LOCK is refused, kill does nothing,
// and the server ends the wait after a second.
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

// resendUnlocked sends the operations of a killed statement again if their rows are not locked.
// The other operations, and all that were sent again before, join the blocked operations.
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

// locked returns whether another client has locked the row of each of ps, if the row exists.
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

// blockedOps are operations whose row another client has locked.
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

// run checks the rows until no operation waits or the backend is closed.
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
		pause.Reset(max(blockedFor, blockedRests*time.Since(began))) // many rows take long
		k.mu.Lock()
		k.waiting = append(rest, k.waiting...)
		k.mu.Unlock()
	}
}

// look sends the operations whose row is free. Of the operations on locked rows it sends as
// many as find a slot, oldest first. Of those without a row it sends as many as find a
// place in probes, the least killed first. It returns the rest, which go on waiting.
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

// tryAlone sends p alone in a statement if t gets one of places, or appends p to rest.
func (p *pending) tryAlone(t *inFlight, places chan struct{}, rest []*pending) []*pending {
	if !t.take(places) || !p.batcher.link.background.Go(func() { p.batcher.try(t, []*pending{p}) }) {
		t.end()
		return append(rest, p)
	}
	return rest
}
