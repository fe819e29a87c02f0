// Package postgres keeps locks as rows of a PostgreSQL database, 12 or later.
// It is the example that docs/authoring.md walks through.
//
// A lock is one row while it is held, and the row alone decides: each operation
// is one transaction in one round trip, and all times are the server's. Waiters
// stand in a table of their own, and a release wakes the first one by NOTIFY.
//
// Asynchronous replication loses the last grants at a failover: two may hold a
// lock then, and the later one has the higher token unless the new server's clock is
// behind. A server's clock that is turned forward ends leases early. Connections must be the
// server's own: behind a pooler that shares them among clients (PgBouncer in
// transaction mode) LISTEN hears nothing, and waiters ask every second.
package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
)

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name: "postgres",
	Doc:  "locks as rows of a PostgreSQL database",
	Keys: []driver.Key{
		{Name: "address", Type: driver.TypeList, Required: true, Doc: "HOST:PORT of the server; of several the first one that can be written to is used"},
		{Name: "database", Type: driver.TypeString, Default: "postgres", Doc: "database in which the schema lockbench is made"},
		{Name: "username", Type: driver.TypeString, Required: true, Doc: "role to log in as"},
		{Name: "password", Type: driver.TypeString, Secret: true, Doc: "password of the role"},
		{Name: "password_file", Type: driver.TypeString, Doc: "file with the password, read again for each connection"},
		{Name: "prefix", Type: driver.TypeString, Doc: "hosts with different prefixes do not see each other's locks"},
		{Name: "tls_enabled", Type: driver.TypeBool, Doc: "encrypt, and verify the server's certificate"},
		{Name: "tls_ca_file", Type: driver.TypeString, Doc: "authorities to trust instead of the system's; turns TLS on"},
		{Name: "connections", Type: driver.TypeInt, Default: "8", Doc: "most connections of a host; one more listens for wake-ups"},
	},
	Open:       open,
	Properties: properties,
}

var properties = driver.Properties{
	Name:           "postgres",
	Fencing:        driver.FencingDurable,
	Scope:          driver.ScopeShared,
	TTLMin:         10 * time.Millisecond,
	TTLStep:        time.Millisecond,
	TTLMax:         24 * time.Hour,
	Durability:     "unknown",
	FIFO:           true,
	TimedTokens:    true,
	SurvivesPlugin: true,
	// Note: no CapObserver. A NOTIFY of each change would make every commit of the
	// database wait for the others': notices have one queue and one lock.
	Capabilities: []driver.Capability{driver.CapWaiter, driver.CapAdmin},
}

// backend is one host's use of a database. Of locks it keeps nothing in memory.
type backend struct {
	prefix string
	pool   *pgxpool.Pool
	log    *slog.Logger
	props  atomic.Pointer[driver.Properties]

	channel string // on which this host listens
	mu      sync.Mutex
	heard   bool                     // whether the host listens at the moment
	asleep  map[string]chan struct{} // by owner; closed to wake

	closed context.Context // ends with Close
	close  context.CancelFunc
	done   chan struct{} // closed when the listener has ended
}

func open(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
	settings, err := connection(cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", driver.ErrConfig, err)
	}
	// The pool connects when it is asked: a server that is down is no error yet.
	pool, err := pgxpool.NewWithConfig(context.Background(), settings)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", driver.ErrConfig, err)
	}
	b := &backend{
		prefix: cfg["prefix"], pool: pool, log: log,
		channel: "lockbench_" + rand.Text(), asleep: map[string]chan struct{}{}, done: make(chan struct{}),
	}
	b.props.Store(&properties)
	b.closed, b.close = context.WithCancel(context.Background())
	go b.listen(settings)
	return b, nil
}

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	var token uint64
	var h driver.Holder
	var withdrawn bool
	err := b.step(ctx, "acquire", r,
		do(lockUnlessHeld), one(grant, &token), do(dropEmpty), do(leaveIfGranted), holder(&h), one(isWithdrawn, &withdrawn))
	switch {
	case err != nil:
		return 0, err
	case token != 0:
		return token, nil
	case withdrawn:
		return 0, fmt.Errorf("postgres: acquire %q: %w", r.Name, driver.ErrWithdrawn)
	}
	return 0, &driver.HeldError{Holder: h}
}

// ifHeld is a step on the lease of r, or the refusal that it is not there. The
// first statement changes the row and returns a line for it.
func (b *backend) ifHeld(ctx context.Context, operation string, r driver.Request, change statement, more ...query) error {
	var changed bool
	var h driver.Holder
	err := b.step(ctx, operation, r, append([]query{one(change, &changed), holder(&h)}, more...)...)
	if err == nil && !changed {
		return &driver.NotHeldError{Holder: h}
	}
	return err
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	return b.ifHeld(ctx, "renew", r, renew)
}

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.ifHeld(ctx, "proclaim", r, proclaim)
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	if r.Keep > 0 {
		return b.ifHeld(ctx, "release", r, shorten)
	}
	return b.ifHeld(ctx, "release", r, release, do(wakeNext))
}

func (b *backend) Withdraw(ctx context.Context, name, owner string) error {
	// In this order an acquire that is still on its way comes before the lock
	// of the row, and is undone, or after it, and finds the tombstone.
	return b.step(ctx, "withdraw", driver.Request{Name: name, Owner: owner},
		do(lock), do(leaveTombstone), do(leave), do(dropOwned), do(dropEmpty), do(wakeNext))
}

func (b *backend) Inspect(ctx context.Context, name string) (h driver.Holder, err error) {
	err = b.step(ctx, "inspect", driver.Request{Name: name}, holder(&h))
	return h, err
}

// List implements driver.Admin.
func (b *backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	var all []driver.Holder
	// Collected first: emit may block, and must not keep a connection meanwhile.
	err := b.step(ctx, "list", driver.Request{Name: prefix}, holders(list, &all))
	for _, h := range all {
		if !emit(h) {
			break
		}
	}
	return err
}

// Break implements driver.Admin.
func (b *backend) Break(ctx context.Context, name string, token uint64) error {
	return b.ifHeld(ctx, "break", driver.Request{Name: name, Token: token}, breakGrant, do(wakeNext))
}

// Check takes the road of an acquire, for a name that no lock has: granted to nobody,
// its row is dropped again.
func (b *backend) Check(ctx context.Context) error {
	var version, durability string
	err := b.step(ctx, "check", driver.Request{}, do(lock), do(grant), do(dropEmpty), one(serverVersion, &version), one(settings, &durability))
	if err != nil {
		return err
	}
	p := properties
	p.Server, p.Durability = "PostgreSQL "+version, durability
	b.props.Store(&p)
	return nil
}

func (b *backend) Properties() driver.Properties { return *b.props.Load() }

func (b *backend) Close(ctx context.Context) error {
	b.close()
	ended := make(chan struct{})
	go func() {
		<-b.done
		b.pool.Close() // waits for the connections that are in use
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listening connects outside of the pool: a connection that listens is never
// anybody else's.
func listening(ctx context.Context, settings *pgxpool.Config) (*pgx.Conn, error) {
	c := settings.ConnConfig.Copy()
	if err := settings.BeforeConnect(ctx, c); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, c)
}
