package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Backend gives one host access to the locks in one database. Its methods may be called from any
// number of goroutines.
type Backend struct {
	opts   Options
	pool   *pgxpool.Pool
	server atomic.Pointer[server]
	pooled atomic.Bool // the address leads to a pooler, which shares sessions among clients
	making sync.Mutex  // guards the creation of the schema
	// identity is the server in use. It is needed because the address may lead to several servers.
	identity kit.Identity

	acquires, renewals, releases, withdrawals batcher
	shortens, proclaims, enters               batcher
	listener                                  listener
	observers                                 kit.Poller

	// stuck has the locks whose rows another client recently kept locked. The capacity of alone limits
	// how many operations on these locks run at a time.
	stuck kit.Recent[string, struct{}]
	alone chan struct{}

	// Statements run in the background context, so they go on after their callers have given up.
	background *kit.Group
}

// Open makes a Backend, without waiting for the server. Nil options and zero
// fields mean the defaults. Its error wraps [driver.ErrConfig].
func Open(opts *Options) (*Backend, error) { return open(config.Filled(opts)) }

func open(o Options) (*Backend, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	b := &Backend{opts: o, background: kit.NewGroup(), identity: kit.Identity{Addr: "address", Log: o.Logger}}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("postgres: %w", config.Invalid(err))
	}
	settings, _, err := o.target("address", o.Address)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", config.Invalid(err))
	}
	listen := settings
	if o.ListenAddress != "" && o.ListenAddress != noListening {
		if listen, _, err = o.target("listen_address", o.ListenAddress); err != nil {
			return nil, fmt.Errorf("postgres: %w", config.Invalid(err))
		}
	}
	if b.pool, err = pgxpool.NewWithConfig(context.Background(), b.through(settings)); err != nil {
		return nil, fmt.Errorf("postgres: %w", config.Invalid(err))
	}
	b.start(listen)
	return b, nil
}

// start makes the batchers and begins the background work, which ends with Close.
func (b *Backend) start(listen *pgxpool.Config) {
	b.acquires = b.batcher("acquire", "acquire1($1,$2,$3,$4,$5,$6)", func(c columns) []any { return []any{c.names, c.owners, c.ttls, c.labels, c.values} })
	b.renewals = b.batcher("renew", "renew1($1,$2,$3,$4,$5)", func(c columns) []any { return []any{c.names, c.owners, c.tokens, c.ttls} })
	b.releases = b.batcher("release", "release1($1,$2,$3,$4)", func(c columns) []any { return []any{c.names, c.owners, c.tokens} })
	b.shortens = b.batcher("release", "shorten1($1,$2,$3,$4,$5)", func(c columns) []any { return []any{c.names, c.owners, c.tokens, c.keeps} })
	b.proclaims = b.batcher("proclaim", "proclaim1($1,$2,$3,$4,$5)", func(c columns) []any { return []any{c.names, c.owners, c.tokens, c.values} })
	b.withdrawals = b.batcher("withdraw from", "withdraw1($1,$2,$3)", func(c columns) []any { return []any{c.names, c.owners} })
	b.enters = b.batcher("wait for", "enter1($1,$2,$3,$4,$5,$6,$7,$8)", func(c columns) []any {
		return []any{b.listener.hearing(), c.names, c.owners, c.ttls, c.labels, c.values, c.stays}
	})
	b.renewals.width, b.enters.before = renewWidth, b.listener.signFirst
	b.stuck.Age, b.alone = stuckFor, make(chan struct{}, max(1, b.opts.Connections/4))
	for _, l := range b.batchers() {
		l.init()
	}
	b.observers = kit.Poller{Every: observeEvery, Look: b.look, Go: b.background.Go}
	b.listener = listener{b: b, started: time.Now(), asleep: map[string]*sleeper{}, tried: make(chan struct{})}
	if b.opts.ListenAddress != noListening {
		b.background.Go(func() { b.listener.run(listen) })
	}
	b.background.Go(b.sweep)
}

func (b *Backend) batchers() []*batcher {
	return []*batcher{&b.acquires, &b.renewals, &b.releases, &b.withdrawals, &b.shortens, &b.proclaims, &b.enters}
}

// Close ends all statements and closes the connections. It does not release leases.
func (b *Backend) Close(ctx context.Context) error {
	return b.background.Close(ctx, func() {
		for _, l := range b.batchers() {
			l.batches.Close()
		}
		b.pool.Close()
	})
}

// TryAcquire calls one function of the schema.
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	res := b.acquires.one(ctx, r)
	return res.Token, res.Err
}

// Renew calls one function of the schema.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.renewals.one(ctx, r).Err
}

// Release calls one SQL function, which grants the lock to the next waiter if r.Keep is 0.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	return b.releaser(r).one(ctx, r).Err
}

func (b *Backend) releaser(r driver.Request) *batcher {
	if r.Keep > 0 {
		return &b.shortens
	}
	return &b.releases
}

// Withdraw calls one function of the schema.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.withdrawals.one(ctx, driver.Request{Name: name, Owner: owner}).Err
}

// Proclaim calls one function of the schema.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.proclaims.one(ctx, r).Err
}

// Start implements driver.Starter.
func (b *Backend) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	l := b.batcherOf(op)
	if l == nil {
		done(driver.Result{Err: fmt.Errorf("postgres: %w: operation %d", driver.ErrInvalid, op.Kind)})
		return
	}
	l.start(&pending{Request: op.Request, ctx: ctx, done: done})
}

func (b *Backend) batcherOf(op driver.Op) *batcher {
	switch op.Kind {
	case driver.OpAcquire:
		return &b.acquires
	case driver.OpRenew:
		return &b.renewals
	case driver.OpRelease:
		return b.releaser(op.Request)
	case driver.OpWithdraw:
		return &b.withdrawals
	}
	return nil
}

// Batch implements driver.Batcher. Operations on one lock run in sequence, in the order of ops.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	byName := map[string][]int{}
	for i, op := range ops {
		byName[op.Name] = append(byName[op.Name], i)
	}
	var all sync.WaitGroup
	all.Add(len(ops))
	var next func(same []int)
	next = func(same []int) {
		if len(same) == 0 {
			return
		}
		b.Start(ctx, ops[same[0]], func(r driver.Result) {
			results[same[0]] = r
			next(same[1:])
			all.Done()
		})
	}
	for i, op := range ops {
		if same := byName[op.Name]; same[0] == i {
			next(same)
		}
	}
	all.Wait()
	return results
}

// Inspect sends one query.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	if err := valid(driver.Request{Name: name, Owner: "reader"}); err != nil {
		return driver.Holder{}, err
	}
	found, err := b.find(ctx, "inspect", name)
	if len(found) == 0 {
		return driver.Holder{}, err
	}
	return found[0], err
}

func (b *Backend) find(ctx context.Context, what string, names ...string) ([]driver.Holder, error) {
	keys := make([][]byte, len(names))
	for i, name := range names {
		keys[i] = b.key(name)
	}
	return read(ctx, b, what, names[0], func(ctx context.Context, c *pgxpool.Conn) ([]driver.Holder, error) {
		rows, err := c.Query(ctx, "SELECT lock, owner, label, value, token, left_ms, waiters FROM lockbench.find1($1::bytea[])", keys)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h driver.Holder, err error) {
			var key, label []byte
			var left int64
			err = row.Scan(&key, &h.Owner, &label, &h.Value, &h.Token, &left, &h.Waiters)
			h.Name, h.Label, h.TTL = string(key[min(len(key), len(b.key(""))):]), string(label), time.Duration(left)*time.Millisecond
			return h, err
		})
	})
}

// key returns the table's key for a lock name: prefix, slash, name. A prefix contains no slash.
func (b *Backend) key(name string) []byte { return []byte(b.opts.Prefix + "/" + name) }

const listAtOnce = 500

// List reads held locks in pages. It may miss a change that is made between two pages.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	for after := b.key(""); ; {
		keys, err := read(ctx, b, "list", prefix, func(ctx context.Context, c *pgxpool.Conn) (keys [][]byte, err error) {
			err = c.QueryRow(ctx, "SELECT lockbench.list1($1::bytea, $2::bytea, $3::int)", b.key(prefix), after, listAtOnce).Scan(&keys)
			return keys, err
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		var names []string
		for _, after = range keys {
			names = append(names, string(after[len(b.key("")):]))
		}
		page, err := b.find(ctx, "list", names...)
		if err != nil {
			return err
		}
		for _, h := range page {
			if !emit(h) {
				return nil
			}
		}
		if len(names) < listAtOnce {
			return nil
		}
	}
}

// Break ends the named lock's lease if the lease has the given token. The owner does not matter.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	if token == 0 {
		return fmt.Errorf("postgres: break %q: %w: no lease has the token 0", name, driver.ErrInvalid)
	}
	if err := valid(driver.Request{Name: name, Owner: "operator"}); err != nil {
		return err
	}
	return b.releases.wait(&pending{Request: driver.Request{Name: name, Token: token}, ctx: ctx}).Err
}

const observeEvery = 25 * time.Millisecond

// Observe reads the lock every 25 ms. One query reads up to 500 observed locks of the host.
//
// Note: a notice (NOTIFY) for each change would make all commits of the database wait for
// each other, because PostgreSQL has one queue of notices with one lock.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return b.observers.Follow(ctx, name, emit)
}

func (b *Backend) look(names []string) map[string]kit.Seen {
	seen := make(map[string]kit.Seen, len(names))
	for some := range slices.Chunk(names, listAtOnce) {
		holders, err := b.find(b.background, "observe", some...)
		for _, h := range holders {
			seen[h.Name] = kit.Seen{Holder: h}
		}
		if err != nil {
			for _, name := range some {
				seen[name] = kit.Seen{Err: err}
			}
		}
	}
	return seen
}
