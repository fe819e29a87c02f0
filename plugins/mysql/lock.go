package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// newNonce returns a random number above 1. In the attempt column, 0 and 1 have other meanings.
func newNonce() uint64 { return rand.Uint64()>>1 | 2 }

func newOperation(r driver.Request) statement.Operation {
	return statement.Operation{Request: r, Nonce: newNonce()}
}

func valid(r driver.Request) error {
	if !statement.Plain(r.Owner) {
		return fmt.Errorf("mysql: %w: owner %q is not 1 to 64 of [A-Za-z0-9_-]", driver.ErrInvalid, r.Owner)
	}
	if len(r.Name) == 0 || len(r.Name) > 512 || len(r.Label) > 256 {
		return fmt.Errorf("mysql: %w: name of %d bytes is not 1 to 512, or label of %d above 256", driver.ErrInvalid, len(r.Name), len(r.Label))
	}
	return nil
}

func ready(ctx context.Context, r driver.Request) error {
	if err := valid(r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return conn.NotSent(err)
	}
	return nil
}

func (l *batcher) one(ctx context.Context, r driver.Request) driver.Result {
	if err := ready(ctx, r); err != nil {
		return driver.Result{Err: err}
	}
	return l.send(ctx, newOperation(r))[0].wait()
}

// TryAcquire sends one statement; see [statement.Acquire].
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	result := b.acquirer(r.Name).one(ctx, r)
	return result.Token, result.Err
}

// acquirer returns the batcher for acquires of a lock: b.firsts if the lock may have no row yet.
func (b *Backend) acquirer(name string) *batcher {
	if b.rows.Has(name) {
		return &b.acquires
	}
	return &b.firsts
}

// Renew sends one statement.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.renewals.one(ctx, r).Err
}

// Release sends one statement. It sends more if it must still wake a waiter or grant one the lock.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	if r.Keep > 0 {
		return b.shortens.one(ctx, r).Err
	}
	return b.releases.one(ctx, r).Err
}

func (b *Backend) runRenewals(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	n, _, err := s.Exec(ctx, statement.Renew(b.table, ops))
	if err != nil {
		return nil, nil, err
	}
	results := make([]driver.Result, len(ops))
	if int(n) == len(ops) {
		return results, nil, nil
	}
	return results, nil, b.missing(ctx, s, ops, results, func(r statement.Row, a statement.Operation) bool {
		return r.Held() && r.Owner == a.Owner && r.Token == a.Token
	})
}

func (b *Backend) runReleases(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	alone := len(ops) == 1 && b.contended.Has(ops[0].Name)
	nonce := newNonce()
	n, reply, err := b.endLeases(ctx, s, nonce, ops, alone)
	if err != nil {
		return nil, nil, err
	}
	results := make([]driver.Result, len(ops))
	if int(n) < len(ops) {
		err = b.missing(ctx, s, ops, results, func(r statement.Row, _ statement.Operation) bool { return len(ops) > 1 && r.FreedBy == nonce })
	}
	if err != nil && n > 0 { // a second try, with a new nonce, would report released leases as lost
		err = fmt.Errorf("mysql: release: %w: what it has released is unknown: %v", driver.ErrUnavailable, err)
	}
	for i := range results {
		if ops[i].Again && results[i].Err != nil { // an earlier try, killed after its commit, may have ended the lease
			results[i].Err = fmt.Errorf("mysql: release: %w: the statement was killed: %v", driver.ErrUnavailable, results[i].Err)
		}
	}
	return results, b.then(ctx, s, ops, reply), err
}

// The method then returns a function to call after a statement has freed locks of ops. That
// function wakes the first waiters, and grants them the locks if the statement did not. The
// parameter reply is the statement's reply. If it is 0, no waiter is left, and the result is nil.
func (b *Backend) then(ctx context.Context, s *conn.Session, ops []statement.Operation, reply uint64) func() {
	switch {
	case reply == 0:
		return nil
	case len(ops) == 1:
		return func() { b.next(ctx, s, ops[0].Name, reply) }
	}
	return func() {
		var freed []string
		err := b.each(ctx, s, statement.Names(ops), func(r statement.Row) {
			if r.Queue != "" && !r.Held() {
				freed = append(freed, r.Name)
			}
		})
		if err != nil && b.background.Err() == nil {
			b.opts.Logger.Warn("mysql: looking for waiters", "err", err) // waiters also wake up without this
		}
		for _, name := range freed {
			b.next(ctx, s, name, reply)
		}
	}
}

// endLeases releases the leases of ops. It returns the number of leases that existed, and the
// statement's reply; see [statement.Release]. A failed block of statements may leave a transaction
// open. So endLeases then marks the session broken, and closing it rolls the transaction back.
func (b *Backend) endLeases(ctx context.Context, s *conn.Session, nonce uint64, ops []statement.Operation, alone bool) (n int64, reply uint64, err error) {
	if !alone || !s.Server.MariaDB {
		return s.Exec(ctx, statement.Release(b.table, nonce, ops, alone))
	}
	err = s.Query(ctx, statement.ReleaseAndWake(b.table, nonce, ops[0]), func(v []sqldriver.Value) error {
		n, reply = conn.Int(v[0]), conn.Uint(v[1])
		return nil
	})
	s.Broken = s.Broken || err != nil
	return n, reply, err
}

// missing sets a NotHeldError for each operation whose row is missing or does not satisfy done.
func (b *Backend) missing(ctx context.Context, s *conn.Session, ops []statement.Operation, results []driver.Result, done func(statement.Row, statement.Operation) bool) error {
	rows := map[string]statement.Row{}
	if err := b.each(ctx, s, statement.Names(ops), func(r statement.Row) { rows[r.Name] = r }); err != nil {
		return err
	}
	for i, a := range ops {
		if r, ok := rows[a.Name]; !ok || !done(r, a) {
			results[i].Err = &driver.NotHeldError{Holder: r.Holder()}
		}
	}
	return nil
}

// runSingle returns a function that runs one operation's statement, which the text function makes.
// That function's second result wakes the waiter that the reply names, or grants the lock to the
// next waiter.
func (b *Backend) runSingle(text func(table string, r driver.Request) string) func(context.Context, *conn.Session, []statement.Operation) ([]driver.Result, func(), error) {
	return func(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
		n, reply, err := s.Exec(ctx, text(b.table, ops[0].Request))
		if err != nil {
			return nil, nil, err
		}
		results := make([]driver.Result, 1)
		if n == 0 {
			err = b.missing(ctx, s, ops, results, func(statement.Row, statement.Operation) bool { return false })
		}
		return results, b.then(ctx, s, ops, reply), err
	}
}

// Withdraw waits at most 250 ms (settleFor) for replies to the owner's requests from this process.
// If all were refused, the store needs no change. Otherwise Withdraw shares a statement with other
// withdrawals, over a reserved connection, because requests may keep all other connections busy.
//
// Note: Withdraw cannot just kill the connection of a request. If a plugin is killed, the server
// goes on with its statements, and the next plugin process does not know the connections of these
// statements. A statement may also still lie unread in a socket. A tombstone (a mark of the owner
// in the lock's row) stops such a statement, because the statement locks and reads that row.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	r := driver.Request{Name: name, Owner: owner}
	if err := ready(ctx, r); err != nil {
		return err
	}
	undo, tombstone := b.owners.withdraw(ctx, r.Owner)
	if !undo {
		return nil
	}
	return b.withdrawals.send(ctx, statement.Operation{Request: r, Tombstone: tombstone})[0].wait().Err
}

func (b *Backend) runWithdrawals(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	_, reply, err := s.Exec(ctx, statement.Withdraw(b.table, ops))
	if err != nil {
		return nil, nil, err
	}
	return make([]driver.Result, len(ops)), b.then(ctx, s, ops, reply), nil
}

// Inspect sends one query.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	found, err := do(ctx, b.link, "inspect", name, func(ctx context.Context) ([]driver.Holder, error) {
		return b.holders(ctx, statement.Inspect(b.table, name))
	})
	if len(found) == 0 {
		return driver.Holder{}, err
	}
	return found[0], err
}

// holders runs a query that selects stateColumns and value. It returns the holders that it finds.
func (b *Backend) holders(ctx context.Context, text string) (found []driver.Holder, err error) {
	err = b.on(ctx, b.pool.Get, func(ctx context.Context, s *conn.Session) error {
		found = nil
		return s.Query(ctx, text, func(v []sqldriver.Value) error {
			if h := statement.Read(v).Holder(); h.Held() {
				h.Value = conn.Bytes(v[len(v)-1])
				found = append(found, h)
			}
			return nil
		})
	})
	return found, err
}

func (b *Backend) each(ctx context.Context, s *conn.Session, names []string, f func(statement.Row)) error {
	return s.Query(ctx, statement.Inspect(b.table, names...), func(v []sqldriver.Value) error {
		f(statement.Read(v))
		return nil
	})
}

const listAtOnce = 500

// List reads held locks in pages, so that no query takes long. If a lock is taken or released
// between the reads of two pages, List may miss the lock or still list it.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	for after := ""; ; {
		page, err := do(ctx, b.link, "list", prefix, func(ctx context.Context) ([]driver.Holder, error) {
			return b.holders(ctx, statement.List(b.table, prefix, after, listAtOnce))
		})
		if err != nil {
			return err
		}
		for _, h := range page {
			if !emit(h) {
				return nil
			}
			after = h.Name
		}
		if len(page) < listAtOnce/2 { // a full page may lack rows that expired during the query
			return nil
		}
	}
}

// Break sends one statement, and more if there is a waiter.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return b.breaks.one(ctx, driver.Request{Name: name, Owner: "operator", Token: token}).Err
}

// Proclaim sends one statement.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.proclaims.one(ctx, r).Err
}

// observeEvery is the interval between two reads of all observed locks. The backend polls, because
// the server does not notify observers of a change.
const observeEvery = 25 * time.Millisecond

// Observe reads the lock every 25 ms. One query reads up to 500 observed locks of the host.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return b.observers.Follow(ctx, name, emit)
}

func (b *Backend) look(names []string) map[string]kit.Seen {
	ctx, cancel := b.statement(b.background)
	defer cancel()
	seen := make(map[string]kit.Seen, len(names))
	for some := range slices.Chunk(names, lookAtOnce) {
		holders, err := b.holders(ctx, statement.Inspect(b.table, some...))
		for _, h := range holders {
			seen[h.Name] = kit.Seen{Holder: h}
		}
		if err != nil {
			for _, name := range some {
				seen[name] = kit.Seen{Err: conn.StatementError("observe", name, err)}
			}
		}
	}
	return seen
}
