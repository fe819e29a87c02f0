package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

const (
	// These constants limit the number of operations in one statement. A commit costs the same for one
	// row and for many, but a long statement keeps its first rows locked until its end.
	acquireWidth, releaseWidth, withdrawWidth, renewWidth = 64, 64, 64, 500
	// senders is the largest number of statements of one kind under way at a time. With two
	// statements, the server works on one while it writes the commit of the other to disk.
	senders = 2
	// packetUnknown is the smallest default of max_allowed_packet. It limits the bytes of a statement
	// until the server's value is known. fixedText is an upper bound of the bytes that a statement
	// contains besides its operations.
	packetUnknown, fixedText = 1 << 20, 4096
)

// batcher sends operations of one kind. An idle sender sends an operation at once, and
// alone. Operations that come while all senders are busy go out together in the next
// statement. So batches grow with the load, and no operation waits for a batch to fill.
type batcher struct {
	link    *link
	owners  *owners     // remembers the owners of its requests; nil if not needed
	blocked *blockedOps // operations that wait for a row that another client has locked
	what    string      // the operation's name in errors
	width   int
	senders int  // zero means the constant senders
	patient bool // true for renewals: they can wait, and only those with equal TTLs share a statement
	repeats bool // a statement may contain a name several times
	values  bool // a statement contains the published values
	// The get function takes a connection from a pool. The capacity of slots limits how many
	// statements wait in the server for locked rows. The capacity of probes limits how many statements
	// test whether an insert has to wait. The probes field is nil if the batcher inserts no rows.
	get           func(ctx context.Context) (*conn.Session, error)
	slots, probes chan struct{}
	// run sends ops, sorted by name, in one statement. After an error, the outcome of all ops is
	// unknown. run may return a function that does more work on the connection. No KILL may interrupt
	// that function.
	run func(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error)

	batches *kit.Batcher[*pending]
}

func (l *batcher) init() {
	limits := kit.Limits[*pending]{
		Count: func() int { return l.width },
		Size:  l.size, Room: func() int { return l.link.packet() - fixedText },
		Claim: func(p *pending) bool { return p.ctx.Err() == nil }, // deliver claims p once connected
	}
	if !l.repeats {
		limits.Name = func(p *pending) string { return p.Name }
	}
	if l.patient {
		limits.Joins = func(first, p *pending) bool { return first.TTL == p.TTL }
	}
	l.batches = kit.NewBatcher(kit.BatcherOptions[*pending]{Limits: limits, Senders: cmp.Or(l.senders, senders), Send: l.serve})
}

// pending is an operation under way in a batcher. The caller can cancel the operation until a
// statement that contains it is sent.
type pending struct {
	statement.Operation
	kit.Ticket
	batcher *batcher
	ctx     context.Context // the caller's context; after its end the caller does not wait
	owner   *owner          // nil if the batcher does not remember owners
	since   time.Time
	kills   int // number of its statements that were killed because a row was locked
	result  driver.Result
}

// send queues operations in the batcher and returns at once.
func (l *batcher) send(ctx context.Context, ops ...statement.Operation) []*pending {
	all := make([]*pending, len(ops))
	now := time.Now()
	queue := make([]*pending, 0, len(ops))
	for i, a := range ops {
		p := &pending{Operation: a, batcher: l, ctx: ctx, since: now}
		p.Open()
		all[i] = p
		if l.owners != nil {
			if p.owner = l.owners.begin(a.Owner); p.owner == nil {
				p.refuse(fmt.Errorf("mysql: %s %q: %w", l.what, a.Name, driver.ErrWithdrawn))
				continue
			}
		}
		queue = append(queue, p)
	}
	l.enter(queue)
	return all
}

func (l *batcher) enter(ps []*pending) {
	if !l.batches.Add(ps...) {
		refuseAll(ps, driver.ErrClosed)
	}
}

func (p *pending) wait() driver.Result {
	switch p.Wait(p.ctx) {
	case kit.Answered:
		return p.result
	case kit.NotSent:
		err := p.unsent(conn.NotSent(p.ctx.Err()))
		p.forget(err)
		return driver.Result{Err: err}
	}
	return driver.Result{Err: noAnswer(p.ctx, p.batcher.what, p.Name)}
}

// refuse ends the operation p with err, unless p has been sent.
func (p *pending) refuse(err error) {
	if p.GiveUp() {
		p.finish(driver.Result{Err: p.unsent(err)})
	}
}

// unsent returns the error of an operation that leaves the queue because of err. If a killed
// statement contained the operation, a part of that statement may have been committed, so the
// returned error says that the outcome is unknown.
func (p *pending) unsent(err error) error {
	if !p.Again || !errors.Is(err, driver.ErrNotSent) && !errors.Is(err, driver.ErrWithdrawn) {
		return err
	}
	return fmt.Errorf("mysql: %s %q: %w: the statement was killed: %v", p.batcher.what, p.Name, driver.ErrUnavailable, err)
}

func refuseAll(ps []*pending, err error) {
	for _, p := range ps {
		p.refuse(err)
	}
}

func (p *pending) finish(r driver.Result) {
	p.forget(r.Err)
	p.result = r
	p.End()
}

func (p *pending) forget(err error) {
	if p.owner != nil {
		p.batcher.owners.end(p.owner, err == nil, !conn.Definite(err))
	}
}

// size returns an upper bound of the bytes that p adds to a statement. Names, labels and values are
// written in hexadecimal, and a statement contains each name twice.
func (l *batcher) size(p *pending) int {
	n := 256 + 2*(2*len(p.Name)+len(p.Label)+2*len(p.Owner))
	if l.values {
		n += 2 * len(p.Value)
	}
	return n
}

// packet returns the length limit of a statement, in bytes.
func (k *link) packet() int {
	if s := k.server.Load(); s != nil && s.Packet > 0 {
		return s.Packet
	}
	return packetUnknown
}

// serve sends a batch. If the batch takes long, yield lets another sender start.
func (l *batcher) serve(batch []*pending, yield func()) {
	l.try(&inFlight{batcher: l, many: len(batch) > 1, yield: yield}, batch)
}

// try sends a batch. If the batch is too long for the server, try sends it in halves. If the
// statement is killed because a row is locked, resendUnlocked handles its operations.
func (l *batcher) try(t *inFlight, batch []*pending) {
	timer := time.AfterFunc(l.timeout(t, batch), t.slow)
	left, err := l.deliver(t, batch)
	timer.Stop()
	t.end()
	switch {
	case errors.Is(err, conn.ErrTooLong):
		for half := range slices.Chunk(left, (len(left)+1)/2) {
			l.try(&inFlight{batcher: l, many: len(half) > 1, trip: t.trip}, half)
		}
	case errors.Is(err, errKilled):
		l.resendUnlocked(t, left)
	}
}

// deliver sends batch and gives each operation its result. If the error is errKilled or
// conn.ErrTooLong, it returns the operations that must be sent again.
func (l *batcher) deliver(t *inFlight, batch []*pending) (left []*pending, err error) {
	ctx, cancel := l.link.statement(batch[0].ctx)
	defer cancel()
	// All statements lock their rows in the same order, so they never deadlock each other.
	slices.SortStableFunc(batch, func(p, q *pending) int { return cmp.Compare(p.Name, q.Name) })
	var ops []statement.Operation
	var sent []*pending
	var results []driver.Result
	err = l.link.on(ctx, l.get, func(ctx context.Context, s *conn.Session) (err error) {
		if sent == nil {
			if sent, ops = claim(batch); len(sent) == 0 {
				return nil
			}
		}
		t.on(s)
		var then func()
		results, then, err = l.run(ctx, s, ops)
		t.on(nil)
		if errors.Is(err, conn.ErrTooLong) {
			return err
		}
		for i := range ops {
			ops[i].Again = true
		}
		if then != nil {
			then()
		}
		if conn.RolledBack(err) && (t.killed.Load() || conn.Number(err) == conn.ErLockWaitTimeout) {
			return errKilled
		}
		return err
	})
	if errors.Is(err, errKilled) || errors.Is(err, conn.ErrTooLong) && len(sent) > 1 {
		for i, p := range sent {
			p.Again = ops[i].Again
			p.Unclaim()
		}
		return sent, err
	}
	if l.link.background.Err() != nil && err != nil {
		err = driver.ErrClosed
	}
	if sent == nil && err != nil { // there was no connection
		for _, p := range batch {
			p.refuse(conn.StatementError(l.what, p.Name, err))
		}
	}
	for i, p := range sent {
		if err == nil {
			p.finish(results[i])
		} else {
			p.finish(driver.Result{Err: p.unsent(conn.StatementError(l.what, p.Name, err))})
		}
	}
	return nil, nil
}

// claim returns the operations of batch whose callers still wait, and marks them as sent.
func claim(batch []*pending) (sent []*pending, ops []statement.Operation) {
	for _, p := range batch {
		switch {
		case p.owner != nil && p.owner.leaves.Load():
			p.refuse(fmt.Errorf("mysql: %s %q: %w", p.batcher.what, p.Name, driver.ErrWithdrawn))
		case p.ctx.Err() != nil:
			p.refuse(conn.NotSent(p.ctx.Err()))
		case p.Claim():
			sent, ops = append(sent, p), append(ops, p.Operation)
		}
	}
	return sent, ops
}

// Batch sends each operation through the batcher of its kind, where operations share statements.
// Operations on the same name run one after another.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	byName := make(map[string][]int, len(ops))
	for i, op := range ops {
		byName[op.Name] = append(byName[op.Name], i)
	}
	var apart sync.WaitGroup
	sharing := map[*batcher][]int{} // indices of ops
	for i, op := range ops {
		same := byName[op.Name]
		l := b.batcherOf(op)
		switch {
		case same[0] != i: // handled with the first operation on its name
		case len(same) > 1 || l == nil:
			apart.Go(func() {
				for _, j := range same {
					results[j] = b.single(ctx, ops[j])
				}
			})
		default:
			if results[i].Err = ready(ctx, op.Request); results[i].Err == nil {
				sharing[l] = append(sharing[l], i)
			}
		}
	}
	sent := make([]*pending, len(ops)) // nil for operations that share no statement
	for l, indices := range sharing {
		shared := make([]statement.Operation, len(indices))
		for n, i := range indices {
			shared[n] = newOperation(ops[i].Request)
		}
		for n, p := range l.send(ctx, shared...) {
			sent[indices[n]] = p
		}
	}
	for i, p := range sent {
		if p != nil {
			results[i] = p.wait()
		}
	}
	apart.Wait()
	return results
}

func (b *Backend) batcherOf(op driver.Op) *batcher {
	switch {
	case op.Kind == driver.OpAcquire:
		return b.acquirer(op.Name)
	case op.Kind == driver.OpRenew:
		return &b.renewals
	case op.Kind == driver.OpRelease && op.Keep > 0:
		return &b.shortens
	case op.Kind == driver.OpRelease:
		return &b.releases
	}
	return nil
}

func (b *Backend) single(ctx context.Context, op driver.Op) driver.Result {
	switch l := b.batcherOf(op); {
	case l != nil:
		return l.one(ctx, op.Request)
	case op.Kind == driver.OpWithdraw:
		return driver.Result{Err: b.Withdraw(ctx, op.Name, op.Owner)}
	}
	return driver.Result{Err: fmt.Errorf("mysql: %w: operation %d", driver.ErrInvalid, op.Kind)}
}
