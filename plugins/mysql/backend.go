package mysql

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

const (
	idleFor = time.Minute
	// A Backend remembers at most rowsKept locks whose rows exist. A lock counts as contended if the
	// backend found, within the last contendedFor, that the lock may have a waiter.
	rowsKept     = 4096
	contendedFor = 10 * time.Second
)

// Backend gives one host access to the locks in one table. Its methods may be called from any
// number of goroutines.
type Backend struct {
	*link
	queue

	acquires, renewals, releases, withdrawals batcher
	firsts                                    batcher // acquires that may insert a row, and so may wait for a gap lock
	proclaims, shortens, breaks               batcher // one operation per statement
	blocked                                   blockedOps
	observers                                 kit.Poller

	// rows has names of locks that this process was granted, so their rows usually exist. The names
	// only decide which statement an acquire sends first. A wrong decision costs a second statement.
	rows kit.Recent[string, struct{}]
}

// link has the connections to the database, and the goroutines that use them.
type link struct {
	opts   Options
	table  string // the table's name, quoted
	server atomic.Pointer[conn.Server]
	pool   *conn.Pool // for statements
	waits  *conn.Pool // for waiters

	// cluster and node identify the server in use. Without Galera both are the same.
	cluster, node kit.Identity
	admitted      atomic.Pointer[time.Time] // when the last connection was admitted
	noLocks       sync.Once                 // for the log message that GET_LOCK is refused

	// background is the context of all statements. It does not end when a caller returns.
	background *kit.Group
}

// Open makes a Backend and begins to connect, but does not wait for a connection. Nil options and
// zero fields mean the defaults. The error of Open wraps [driver.ErrConfig].
func Open(opts *Options) (*Backend, error) {
	return open(config.Filled(opts))
}

func open(o Options) (*Backend, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	connector, database, err := o.connector()
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", config.Invalid(err))
	}
	return start(o, connector, conn.Setup(database)), nil
}

// start makes a Backend. Each of its connections first runs the statements in setup.
func start(o Options, connector sqldriver.Connector, setup string) *Backend {
	b := &Backend{link: &link{opts: o, table: tableName(o.Prefix), background: kit.NewGroup()}}
	b.queue.link, b.owners, b.signs.process = b.link, newOwners(), newProcess()
	b.rows.Limit, b.contended.Age = rowsKept, contendedFor
	b.cluster.Log, b.node.Log = o.Logger, slog.New(slog.DiscardHandler)
	b.cluster.Addr = "address"
	b.pool = conn.NewPool(o.Connections, b.dial(connector, setup), b.background.Go)
	b.waits = conn.NewPool(max(0, o.WaitConnections), b.dial(connector, setup), b.background.Go)
	b.pool.Stale, b.waits.Stale = b.stale, b.stale
	slots, probes := make(chan struct{}, slotsOf(o.Connections)), make(chan struct{}, probesOf(o.Connections))
	b.acquires = batcher{link: b.link, blocked: &b.blocked, what: "acquire", run: b.runAcquires, width: acquireWidth, get: b.pool.Get, slots: slots, probes: probes, values: true, owners: b.owners}
	b.firsts = b.acquires
	b.renewals = batcher{link: b.link, blocked: &b.blocked, what: "renew", run: b.runRenewals, width: renewWidth, get: b.pool.Get, slots: slots, patient: true}
	b.releases = batcher{link: b.link, blocked: &b.blocked, what: "release", run: b.runReleases, width: releaseWidth, get: b.pool.Get, slots: slots}
	b.withdrawals = batcher{link: b.link, blocked: &b.blocked, what: "withdraw from", run: b.runWithdrawals, width: withdrawWidth, get: b.pool.GetSpare, probes: make(chan struct{}, 1), repeats: true}
	single := func(what string, text func(string, driver.Request) string) batcher {
		return batcher{link: b.link, blocked: &b.blocked, what: what, run: b.runSingle(text), width: 1, senders: max(1, o.Connections/4), get: b.pool.Get, slots: slots}
	}
	b.proclaims, b.shortens, b.breaks = single("proclaim", statement.Proclaim), single("release", statement.Shorten), single("break", statement.Break)
	b.enters = single("wait for", nil)
	b.enters.run = b.runEnters
	b.observers.Every, b.observers.Look, b.observers.Go = observeEvery, b.look, b.background.Go
	for _, l := range b.batchers() {
		l.init()
	}
	b.background.Go(func() { b.tidy(b.background) })
	for _, p := range []*conn.Pool{b.pool, b.waits} {
		b.background.Go(func() {
			ctx, cancel := b.statement(b.background)
			defer cancel()
			p.Warm(ctx)
		})
	}
	return b
}

func (b *Backend) batchers() []*batcher {
	return []*batcher{&b.acquires, &b.firsts, &b.renewals, &b.releases, &b.withdrawals, &b.proclaims, &b.shortens, &b.breaks, &b.enters}
}

// Close ends the connections and the statements on them. Leases are not released.
func (b *Backend) Close(ctx context.Context) error {
	return b.background.Close(ctx, func() {
		for _, l := range b.batchers() {
			l.batches.Close()
		}
		b.pool.Close()
		b.waits.Close()
		b.signs.close()
	})
}

// The method statement returns the context of one SQL statement. The end of ctx does not interrupt
// the statement, because the server would still run it, and its outcome would remain unknown.
func (k *link) statement(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), k.opts.RequestTimeout, errSlow)
	stop := context.AfterFunc(k.background, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

var errSlow = errors.New("the server does not answer in time")

func noAnswer(ctx context.Context, what, name string) error {
	return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrUnavailable, context.Cause(ctx))
}

// do runs the function f in a goroutine and returns f's result. If ctx ends first, do returns at
// once, and f may go on. So f must return its results, and must not store them in variables of the
// caller.
func do[T any](ctx context.Context, k *link, what, name string, f func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("mysql: %s %q: %w", what, name, conn.NotSent(err))
	}
	done := make(chan result, 1)
	started := k.background.Go(func() {
		sctx, cancel := k.statement(ctx)
		defer cancel()
		value, err := f(sctx)
		done <- result{value, conn.StatementError(what, name, err)}
	})
	if !started {
		return none, driver.ErrClosed
	}
	select {
	case r := <-done:
		if r.err != nil && k.background.Err() != nil {
			return none, driver.ErrClosed
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, noAnswer(ctx, what, name)
	}
}

type use func(ctx context.Context, s *conn.Session) error

// The on method runs the function f on a connection. It runs f again if the server rolled back f's
// statement because of other statements. It runs f once more, on a new connection, if the server
// currently serves no client. So f may run several times. The returned error is f's error, or says
// that no connection was available.
func (k *link) on(ctx context.Context, get func(context.Context) (*conn.Session, error), f use) error {
	created := false
	var unserved error // set at most once, at the first Unserved error
	for try := 0; ; try++ {
		s, err := get(ctx)
		if err != nil {
			return cmp.Or(unserved, err)
		}
		err = f(ctx, s)
		again := conn.RolledBack(err) && ctx.Err() == nil
		switch {
		case conn.Unserved(err) && unserved == nil:
			unserved, again = err, true
		case conn.Number(err) == conn.ErNoSuchTable && !created:
			created = true
			err = k.create(ctx, s)
			again = err == nil
		case errors.Is(err, sqldriver.ErrBadConn): // nothing has been sent
			again = try < 3
		}
		k.pool.Put(s)
		if !again {
			return err
		}
	}
}

// Check returns an error unless the server would serve requests. The server must not be read-only,
// and the address must lead to one server. The table must exist, or the backend must be able to
// create it. The user must have all needed rights on the table. The server must allow KILL QUERY
// and, unless all waiters poll, GET_LOCK.
func (b *Backend) Check(ctx context.Context) error {
	_, err := do(ctx, b.link, "check", b.opts.Prefix, func(ctx context.Context) (none struct{}, err error) {
		return none, b.on(ctx, b.pool.Get, b.examine)
	})
	return err
}

func (b *Backend) examine(ctx context.Context, s *conn.Session) error {
	fresh := s.Server
	err := s.Query(ctx, statement.Check(b.table), func(row []sqldriver.Value) error {
		fresh.ReadOnly = conn.On(conn.String(row[0])) || conn.On(conn.String(row[1]))
		fresh.Flush, fresh.Binlog, fresh.Sync = int(conn.Uint(row[2])), conn.On(conn.String(row[3])), int(conn.Uint(row[4]))
		return nil
	})
	if err != nil {
		return err
	}
	if fresh.ReadOnly {
		return s.ReadOnly()
	}
	b.server.Store(&fresh)
	if err := fresh.NoLocks; err != nil && b.opts.WaitConnections > 0 {
		return fmt.Errorf("mysql: %w: waiters poll, because the server refuses GET_LOCK: %w (with wait_connections=0 that is meant;"+
			" Percona XtraDB Cluster allows it with pxc_strict_mode=PERMISSIVE)", driver.ErrDenied, err)
	}
	if _, _, err := s.Exec(ctx, conn.Kill(statement.NoWakeID)); err != nil && conn.Number(err) != conn.ErNoSuchThread {
		return err
	}
	return b.cluster.Recent()
}
