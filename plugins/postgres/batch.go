package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	// width limits the operations in a call, and renewWidth the renewals in a call. A commit costs
	// the same for one row and for many, but a long call keeps its first rows locked until it ends.
	width, renewWidth = 64, 500
	// senders limits the calls of one kind that are under way at a time. With two calls, the server
	// works on one call while it writes the other call's commit to disk.
	senders = 2
	// patience limits how long a call waits in the server for a row that another client keeps locked.
	// After that time, the call's operations on other rows are sent again in one call. Each operation
	// on the locked row gets a separate call. The limit of these new calls is morePatience.
	patience, morePatience = "50ms", "1s"
	// After its row was found locked, a lock's operations get separate calls for the next stuckFor.
	stuckFor = 2 * time.Second
)

// pending is an operation that is not sent yet or has no result yet. Its caller can cancel the
// operation until it is sent.
type pending struct {
	kit.Ticket
	driver.Request
	ctx  context.Context
	done func(driver.Result) // gets the result if no goroutine waits for it
	stay time.Duration       // the time that the owner's queue entry stays

	sent   time.Time     // an instant before the operation was sent
	state  int64         // the token column of the SQL function's reply
	left   time.Duration // time left of a grant to another waiter; 0 if there is none
	result driver.Result
}

func (p *pending) end(r driver.Result) {
	p.result = r
	if p.done != nil {
		p.done(r)
		return
	}
	p.End()
}

// batcher sends operations of one kind by shared calls of an SQL function. An idle sender sends a
// new operation at once. Operations that come while all senders are busy share the next call.
type batcher struct {
	b      *Backend
	what   string // the operation's name in errors
	call   string
	args   func(columns) []any
	before func(ctx context.Context, c *pgxpool.Conn) error // runs before each call, unless nil
	width  int

	batches *kit.Batcher[*pending]
}

func (b *Backend) batcher(what, call string, args func(columns) []any) batcher {
	return batcher{b: b, what: what, call: "SELECT at, token, owner, label, held, left_ms, waiters FROM lockbench." + call, args: args, width: width}
}

func (l *batcher) init() {
	l.batches = kit.NewBatcher(kit.BatcherOptions[*pending]{
		Limits: kit.Limits[*pending]{
			Count: func() int { return l.width },
			Name:  func(p *pending) string { return p.Name },
			Joins: func(first, p *pending) bool { return !l.b.stuck.Has(first.Name) && !l.b.stuck.Has(p.Name) },
			Claim: func(p *pending) bool { return p.Claim() },
		},
		Senders: senders, Send: l.serve,
	})
}

// columns are the arguments of the schema's functions, one array for each field.
// The operations are sorted by name, so that all calls lock rows in the same order.
type columns struct {
	names, labels, values      [][]byte
	owners                     []string
	tokens, ttls, keeps, stays []int64
}

func (l *batcher) columns(ps []*pending) (c columns) {
	for _, p := range ps {
		c.names, c.owners = append(c.names, l.b.key(p.Name)), append(c.owners, p.Owner)
		c.labels, c.values = append(c.labels, []byte(p.Label)), append(c.values, p.Value)
		c.tokens, c.ttls = append(c.tokens, int64(p.Token)), append(c.ttls, p.TTL.Microseconds())
		c.keeps, c.stays = append(c.keeps, p.Keep.Microseconds()), append(c.stays, p.stay.Microseconds())
	}
	return c
}

func valid(r driver.Request) error {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	if r.Owner == "" || len(r.Owner) > 64 || strings.Trim(r.Owner, plain) != "" {
		return fmt.Errorf("postgres: %w: owner %q is not 1 to 64 of [A-Za-z0-9_-]", driver.ErrInvalid, r.Owner)
	}
	if len(r.Name) == 0 || len(r.Name) > 512 || len(r.Label) > 256 {
		return fmt.Errorf("postgres: %w: name of %d bytes is not 1 to 512, or label of %d above 256", driver.ErrInvalid, len(r.Name), len(r.Label))
	}
	return nil
}

func (l *batcher) one(ctx context.Context, r driver.Request) driver.Result {
	if err := valid(r); err != nil {
		return driver.Result{Err: err}
	}
	return l.wait(&pending{Request: r, ctx: ctx})
}

func (l *batcher) wait(p *pending) driver.Result {
	if p.ctx.Err() != nil {
		return driver.Result{Err: l.unsent(p)}
	}
	p.Open()
	if !l.batches.Add(p) {
		return driver.Result{Err: driver.ErrClosed}
	}
	switch p.Wait(p.ctx) {
	case kit.Answered:
		return p.result
	case kit.NotSent:
		return driver.Result{Err: l.unsent(p)}
	}
	return driver.Result{Err: fmt.Errorf("postgres: %s %q: %w: %w", l.what, p.Name, driver.ErrUnavailable, context.Cause(p.ctx))}
}

// start sends the operation p and returns at once. The function p.done later gets the result.
func (l *batcher) start(p *pending) {
	if err := valid(p.Request); err != nil {
		p.end(driver.Result{Err: err})
	} else if !l.batches.Add(p) {
		p.end(driver.Result{Err: driver.ErrClosed})
	}
}

func (l *batcher) unsent(p *pending) error {
	return fmt.Errorf("postgres: %s %q: %w: %w: %w", l.what, p.Name, driver.ErrUnavailable, driver.ErrNotSent, context.Cause(p.ctx))
}

// serve sends the operations of a batch. It omits an operation if the operation's ctx has ended.
func (l *batcher) serve(batch []*pending, handOn func()) {
	due := batch[:0]
	for _, p := range batch {
		if p.done != nil && p.ctx.Err() != nil {
			p.end(driver.Result{Err: l.unsent(p)})
			continue
		}
		due = append(due, p)
	}
	slices.SortFunc(due, func(p, q *pending) int { return cmp.Compare(p.Name, q.Name) })
	switch {
	case len(due) == 0:
		return
	case l.b.stuck.Has(due[0].Name): // an operation on a stuck lock is always a batch of its own
		handOn()
		l.sendAlone(due)
		return
	}
	err := l.send(due, patience)
	if sqlState(err) != lockNotAvailable {
		l.deliver(due, err)
		return
	}
	free, locked := l.split(due)
	if len(free) > 0 {
		l.deliver(free, l.send(free, morePatience))
	}
	handOn()
	l.sendAlone(locked)
}

// split asks the server which rows another client has locked. If the query fails, split returns all
// operations as locked.
func (l *batcher) split(ps []*pending) (free, locked []*pending) {
	is := map[string]bool{}
	err := l.b.ask(ps[0].ctx, l.what, ps[0].Name, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT lockbench.locked1($1::bytea[])", l.columns(ps).names)
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		for _, key := range keys {
			is[string(key)] = true
		}
		return err
	})
	for _, p := range ps {
		if err == nil && !is[string(l.b.key(p.Name))] {
			free = append(free, p)
			continue
		}
		locked = append(locked, p)
		l.b.stuck.Put(p.Name, struct{}{})
	}
	return free, locked
}

// sendAlone sends each operation, which may wait for a locked row, in a separate call.
// It sends only a few at a time, to keep connections free for operations on other rows.
func (l *batcher) sendAlone(ps []*pending) {
	var all sync.WaitGroup
	for _, p := range ps {
		all.Go(func() {
			select {
			case l.b.alone <- struct{}{}:
			case <-p.ctx.Done():
				p.end(driver.Result{Err: l.unsent(p)})
				return
			case <-l.b.background.Done():
				p.end(driver.Result{Err: driver.ErrClosed})
				return
			}
			err := l.send([]*pending{p}, morePatience)
			<-l.b.alone
			if sqlState(err) == lockNotAvailable {
				l.b.stuck.Put(p.Name, struct{}{})
			}
			l.deliver([]*pending{p}, err)
		})
	}
	all.Wait()
}

// send sends the operations ps, sorted by name, in one call, and stores the result of each.
func (l *batcher) send(ps []*pending, patience string) error {
	args := append([]any{patience}, l.args(l.columns(ps))...)
	return l.b.ask(ps[0].ctx, l.what, ps[0].Name, func(ctx context.Context, c *pgxpool.Conn) error {
		if l.before != nil {
			if err := l.before(ctx, c); err != nil {
				return err
			}
		}
		sent := time.Now() // set at each try, because earlier tries were rolled back
		for _, p := range ps {
			p.sent = sent
		}
		rows, err := c.Query(ctx, l.call, args...)
		if err != nil {
			return err
		}
		var at, token int64
		var h reply
		_, err = pgx.ForEachRow(rows, []any{&at, &token, &h.owner, &h.label, &h.token, &h.left, &h.waiters}, func() error {
			p := ps[at-1]
			p.state, p.result = token, l.result(p, token, h)
			if h.left != nil {
				p.left = time.Duration(*h.left) * time.Millisecond
			}
			return nil
		})
		return err
	})
}

func (l *batcher) deliver(ps []*pending, err error) {
	for _, p := range ps {
		if err != nil {
			p.result = driver.Result{Err: err}
		}
		p.end(p.result)
	}
}

// reply has the columns of an SQL function's reply that describe a lock's holder. If there is no
// holder, all fields are nil.
type reply struct {
	owner                *string
	label                []byte
	token, left, waiters *int64
}

func (l *batcher) result(p *pending, token int64, h reply) driver.Result {
	switch {
	case token == -1:
		return driver.Result{Err: fmt.Errorf("postgres: %s %q: %w", l.what, p.Name, driver.ErrWithdrawn)}
	case token != 0 || l == &l.b.enters:
		return driver.Result{Token: uint64(max(token, 0))}
	}
	var holder driver.Holder
	if h.owner != nil {
		holder = driver.Holder{
			Name: p.Name, Owner: *h.owner, Label: string(h.label), Token: uint64(*h.token),
			TTL: time.Duration(*h.left) * time.Millisecond, Waiters: int(*h.waiters),
		}
	}
	if l == &l.b.acquires {
		return driver.Result{Err: &driver.HeldError{Holder: holder}}
	}
	return driver.Result{Err: &driver.NotHeldError{Holder: holder}}
}
