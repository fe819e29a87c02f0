package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// How many operations go into one statement. A commit costs the same for
	// one row and for many; a long statement keeps its first rows locked until
	// its end.
	acquireWidth, releaseWidth, renewWidth = 64, 64, 500
	// runners is how many statements of one kind are on their way at a time,
	// so that the server works on one while another is written to disk.
	runners = 2
	// slowAfter is when a statement is taken to wait for a row that somebody
	// else keeps locked: commits are done in far less. Renewals, of which there
	// are many in a statement and which have time, wait for an eighth of what
	// their callers give them, up to half of the server's own lock wait: a server
	// that is only busy would be drowned by what is sent instead.
	slowAfter     = 50 * time.Millisecond
	slowestAfter  = 500 * time.Millisecond
	patientShares = 8
	// retryWidth is how many renewals of a killed statement go into one of the
	// next. Other operations go one by one.
	retryWidth = 32
)

// lane carries operations of one kind. One that finds a free runner is sent at
// once and alone; those that come while all are busy go out together in the
// next statement. So the batch grows with the load, and nobody waits for it.
type lane struct {
	b       *Backend
	what    string // in errors
	width   int
	patient bool // renewals
	// run sends asks of different names in one statement. On an error nothing
	// is known about any of them. It may return what else is to be done on the
	// connection, which nothing must interrupt.
	run func(ctx context.Context, s *session, asks []ask) ([]driver.Result, func(), error)

	mu      sync.Mutex
	queue   []*pending
	running int
}

// ask is one operation on its way through a lane.
type ask struct {
	driver.Request
	nonce uint64 // of an acquire: tells its grant from another one of the owner
	again bool   // an earlier statement may have done it without a reply
}

// pending is an operation under way in a lane.
type pending struct {
	ask
	lane   *lane
	ctx    context.Context // the caller's: over means that nobody waits any more
	result chan driver.Result
}

// send puts operations into the lane and returns at once.
func (l *lane) send(ctx context.Context, asks ...ask) []*pending {
	all := make([]*pending, len(asks))
	for i, a := range asks {
		all[i] = &pending{ask: a, lane: l, ctx: ctx, result: make(chan driver.Result, 1)}
	}
	l.mu.Lock()
	l.queue = append(l.queue, all...)
	l.start()
	l.mu.Unlock()
	return all
}

// start starts runners for what is queued. The caller holds mu.
func (l *lane) start() {
	for wanted := (len(l.queue) + l.width - 1) / l.width; wanted > 0 && l.running < runners; wanted-- {
		l.running++
		if !l.b.spawn(l.drain) {
			l.running--
			for _, p := range l.queue {
				p.result <- driver.Result{Err: driver.ErrClosed}
			}
			l.queue = nil
			return
		}
	}
}

// wait returns p's result, or as soon as its caller has given up.
func (p *pending) wait() driver.Result {
	select {
	case r := <-p.result:
		return r
	case <-p.ctx.Done():
		return driver.Result{Err: noAnswer(p.ctx, p.lane.what, p.Name)}
	}
}

func (l *lane) drain() {
	for {
		batch := l.take()
		if batch == nil || !l.serve(batch) {
			return
		}
	}
}

// take returns what goes into the next statement: operations of different
// names, and of one TTL in common for the sake of the renewals. It returns nil
// when there is nothing, and the runner is then no longer counted.
func (l *lane) take() []*pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch, rest []*pending
	names := map[string]bool{}
	for _, p := range l.queue {
		switch {
		case p.ctx.Err() != nil:
			p.result <- driver.Result{Err: notSent(p.ctx.Err())}
		case len(batch) == l.width || names[p.Name] || len(batch) > 0 && p.TTL != batch[0].TTL:
			rest = append(rest, p)
		default:
			names[p.Name] = true
			batch = append(batch, p)
		}
	}
	l.queue = rest
	if batch == nil {
		l.running--
	}
	return batch
}

// serve sends batch and delivers its results. It reports whether the runner is
// still counted as one: not if it was slow, for then another has its place.
func (l *lane) serve(batch []*pending) bool {
	t := &statement{lane: l, many: len(batch) > 1, counted: true}
	l.try(t, batch)
	return t.counted
}

// try sends batch, and what a kill leaves undone again in parts.
func (l *lane) try(t *statement, batch []*pending) {
	timer := time.AfterFunc(l.patience(batch), t.slow)
	err := l.deliver(t, batch)
	timer.Stop()
	t.end()
	if !t.killed.Load() || !errors.Is(err, errKilled) {
		return
	}
	width := 1
	if l.patient && len(batch) > retryWidth {
		width = retryWidth
	}
	for part := range slices.Chunk(batch, width) {
		for _, p := range part {
			p.again = true
		}
		l.b.spawn(func() { l.try(&statement{lane: l, many: len(part) > 1}, part) })
	}
}

// patience is how long a statement for batch may take.
func (l *lane) patience(batch []*pending) time.Duration {
	deadline, limited := batch[0].ctx.Deadline()
	if !l.patient || !limited {
		return slowAfter
	}
	return min(max(slowAfter, time.Until(deadline)/patientShares), slowestAfter)
}

// errKilled: the statement was ended to send its operations in parts.
var errKilled = errors.New("statement was killed")

// deliver sends batch and its results, except when it returns errKilled.
func (l *lane) deliver(t *statement, batch []*pending) error {
	ctx, cancel := l.b.statement(batch[0].ctx)
	defer cancel()
	asks := make([]ask, len(batch))
	for i, p := range batch {
		asks[i] = p.ask
	}
	var results []driver.Result
	err := l.b.on(ctx, l.b.pool.get, func(ctx context.Context, s *session) (err error) {
		t.on(s)
		var then func()
		results, then, err = l.run(ctx, s, asks)
		t.off()
		for i := range asks {
			asks[i].again = true
		}
		if then != nil {
			then()
		}
		if t.killed.Load() && undone(err) {
			return errKilled
		}
		return err
	})
	if errors.Is(err, errKilled) {
		return err
	}
	for i, p := range batch {
		switch {
		case err == nil:
			p.result <- results[i]
		case l.b.life.Err() != nil:
			p.result <- driver.Result{Err: driver.ErrClosed}
		default:
			p.result <- driver.Result{Err: statementError(l.what, p.Name, err)}
		}
	}
	return nil
}

// statement is what a lane has on its way to the server.
type statement struct {
	lane   *lane
	many   bool
	killed atomic.Bool

	mu      sync.Mutex // also keeps the session from being used again during a KILL
	s       *session
	counted bool // it has a runner's place
	over    bool
}

func (t *statement) on(s *session) {
	t.mu.Lock()
	t.s = s
	t.mu.Unlock()
}

func (t *statement) off() {
	t.mu.Lock()
	t.s = nil
	t.mu.Unlock()
}

// end keeps slow from acting on what is over.
func (t *statement) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// slow gives the runner's place to another. A statement for many rows is
// killed: one of them is locked by somebody else, and the rest must not wait
// for it.
//
// An acquire is two statements where there is no RETURNING, and a KILL that
// comes exactly between them drops the reply (see Wait): then the connection
// runs into its deadline, and nothing is known of the batch.
//
// Note: SELECT ... FOR UPDATE SKIP LOCKED before each batch would find such
// rows without a KILL, but takes a second trip each time, and cannot tell a
// locked row from one that does not exist.
func (t *statement) slow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	l := t.lane
	if t.counted {
		t.counted = false
		l.mu.Lock()
		l.running--
		l.start()
		l.mu.Unlock()
	}
	if !t.many || t.s == nil {
		return
	}
	t.killed.Store(true)
	ctx, cancel := context.WithTimeout(l.b.life, l.b.opts.RequestTimeout)
	defer cancel()
	if err := l.b.kill(ctx, t.s.id); err != nil {
		l.b.opts.Logger.Debug("mysql: killing a statement that waits for a row lock", "err", err)
	}
}

// kill ends what runs on the connection with the given id.
func (b *Backend) kill(ctx context.Context, id uint64) error {
	s, err := b.pool.urgent(ctx)
	if err != nil {
		return err
	}
	defer b.pool.put(s)
	_, _, err = s.exec(ctx, fmt.Sprintf("KILL QUERY %d", id))
	return err
}
