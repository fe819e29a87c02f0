package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
)

// server has the facts that a server reports about itself over a new connection.
type server struct {
	id, version          string
	fsync, pages, commit string
	admitted             time.Time // when the last connection was admitted
}

func (s *server) durable() bool {
	return s.fsync == "on" && s.pages == "on" && s.commit != "off"
}

func (s *server) durability() string {
	return fmt.Sprintf("fsync=%s, full_page_writes=%s, synchronous_commit=%s", s.fsync, s.pages, s.commit)
}

// A server is identified by its start time and its listening address. A name stored in the data
// would not be enough, because a standby has the same data as its primary. The start time is
// written as a number, because its text would depend on the time zone.
const (
	identify = `SELECT concat_ws(' ', current_setting('server_version_num'), inet_server_addr(), inet_server_port(), 'of', extract(epoch FROM pg_postmaster_start_time()))`
	describe = identify + `, current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('synchronous_commit'), current_setting('transaction_read_only')`
)

// ask1 runs the given query in one round trip and returns its only row as texts.
func ask1(ctx context.Context, c *pgconn.PgConn, query string) (row []string, err error) {
	results, err := c.Exec(ctx, query).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, column := range results[0].Rows[0] {
		row = append(row, string(column))
	}
	return row, nil
}

// through returns a copy of the settings c for connections to one server, directly or via a pooler.
func (b *Backend) through(c *pgxpool.Config) *pgxpool.Config {
	own := c.Copy()
	before := own.BeforeConnect
	own.BeforeConnect = func(ctx context.Context, fresh *pgx.ConnConfig) error {
		if b.pooled.Load() {
			// Note: do not use exec, pgx's mode for poolers. It reads bytea as
			// text, and the role's bytea_output changes the form of this text.
			fresh.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
			for key := range session {
				delete(fresh.RuntimeParams, key)
			}
		}
		return before(ctx, fresh)
	}
	own.ConnConfig.ValidateConnect = b.admit
	return own
}

// leadsTo is the key in a connection's custom data under which admit stores the server's id.
const leadsTo = "server"

// admit refuses a new connection to a read-only server, and to another server while the server in
// use still answers. It asks the server only once, because a dial of a distant server already takes
// several round trips.
func (b *Backend) admit(ctx context.Context, c *pgconn.PgConn) error {
	said, err := ask1(ctx, c, describe)
	if err != nil {
		return err
	}
	s := server{id: said[0], version: said[1], fsync: said[2], pages: said[3], commit: said[4], admitted: time.Now()}
	if said[5] == "on" {
		return pgconn.ErrReadOnlyConnection
	}
	was := b.identity.Current()
	if err := b.identity.Admit(s.id, b.serves); err != nil {
		return err
	}
	b.server.Store(&s)
	c.CustomData()[leadsTo] = s.id
	if was != "" && was != s.id {
		b.pool.Reset()
	}
	return nil
}

const (
	// servesWithin limits the time of a call of the serves method. The method tries again after
	// lookAgain if no idle connection has answered and other connections are busy.
	servesWithin, lookAgain = 200 * time.Millisecond, 5 * time.Millisecond
	// While dials reach the wrong server, the pause between dials rises from redialFrom to redialTo.
	redialFrom, redialTo = 10 * time.Millisecond, 100 * time.Millisecond
)

// serves reports whether any idle connection still answers and leads to the server in use. If none
// does, it tries again while other connections are busy. It reports true at once if a connection
// was admitted less than redialTo ago, because that connection may not be in the pool yet.
func (b *Backend) serves() bool {
	if s := b.server.Load(); s != nil && time.Since(s.admitted) < redialTo {
		return true
	}
	ctx, cancel := context.WithTimeout(b.background, servesWithin)
	defer cancel()
	is := b.identity.Current()
	for {
		var all sync.WaitGroup
		var ok atomic.Bool
		for _, c := range b.pool.AcquireAllIdle(ctx) {
			all.Go(func() {
				defer c.Release()
				if row, err := ask1(ctx, c.Conn().PgConn(), identify); err == nil && row[0] == is {
					ok.Store(true)
				}
			})
		}
		all.Wait()
		if ok.Load() || ctx.Err() != nil || b.pool.Stat().AcquiredConns() == 0 {
			return ok.Load()
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
		}
	}
}

// connection returns a pool connection to the server in use. For at most half of DialTimeout, it
// tries again while dials reach other servers, or fail although the pool has connections. If a
// pooler refuses the session settings, connection dials without these settings.
func (b *Backend) connection(ctx context.Context) (*pgxpool.Conn, error) {
	end, pooled := time.Now().Add(b.opts.DialTimeout/2), false
	for pause := redialFrom; ; pause = min(2*pause, redialTo) {
		c, err := b.pool.Acquire(ctx)
		switch {
		case err == nil && c.Conn().PgConn().CustomData()[leadsTo] == b.identity.Current():
			return c, nil
		case err == nil:
			_ = c.Conn().Close(ctx) // c leads to a server no longer in use
			c.Release()
			continue
		case sqlState(err) == protocolViolation && strings.Contains(err.Error(), "startup parameter") && !pooled:
			b.pooled.Store(true)
			pooled = true
			continue
		case !errors.Is(err, driver.ErrNotSent) && b.pool.Stat().TotalConns() == b.pool.Stat().ConstructingConns(), time.Now().Add(pause).After(end):
			return nil, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// warm runs the SQL functions of a release, but releases no lock and changes no row.
const warm = "SELECT lockbench.pass1('', ''); SELECT FROM lockbench.release1('1s', '{}', '{}', '{}')"

// giveBack gives the connection c back to the pool. Before c goes back for the first time, its
// session runs the warm statement, because a session compiles each SQL function at its first use.
// Without warm, the release of a dead host's locks would take 6 ms instead of 0.5 ms.
func (b *Backend) giveBack(c *pgxpool.Conn) {
	on := c.Conn().PgConn()
	if on.CustomData()[warm] != nil || on.IsClosed() {
		c.Release()
		return
	}
	on.CustomData()[warm] = true
	warming := b.background.Go(func() {
		defer c.Release()
		ctx, cancel := context.WithTimeout(b.background, b.opts.RequestTimeout)
		defer cancel()
		_, _ = on.Exec(ctx, warm).ReadAll() // after an error, the first release is slow
	})
	if !warming {
		c.Release()
	}
}

// A request that the server rolls back is tried at most maxTries times.
const maxTries = 10

// ask runs f on a connection, for at most RequestTimeout. The end of ctx does not interrupt f,
// because the server would run the statement anyway. If f fails without effect and may succeed at a
// new try, for example after a deadlock, ask runs f again. So f must be safe to run several times.
func (b *Backend) ask(ctx context.Context, what, name string, f func(ctx context.Context, c *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), b.opts.RequestTimeout, errSlow)
	defer cancel()
	defer context.AfterFunc(b.background, cancel)()
	var err error
	for try := range maxTries {
		var c *pgxpool.Conn
		if c, err = b.connection(ctx); err != nil {
			err = b.unconnected(what, name, err)
			break
		}
		err = f(ctx, c)
		b.giveBack(c)
		if err == nil {
			return nil
		}
		again := false
		switch state := sqlState(err); {
		case state == undefinedTable, state == invalidSchema, state == undefinedFunction:
			if made := b.migrate(ctx); made != nil {
				err = made
			} else {
				again = try < 3
			}
		case state == noStatement, state == duplicateStatement:
			b.pooled.Store(true) // a pooler gave the call to a session that lacks the prepared statement
			b.pool.Reset()
			again = true
		case state == serializationFailure, state == deadlockDetected:
			again = true
		case state == readOnly, state == cannotConnectNow:
			b.pool.Reset() // new connections may lead to a server that accepts writes
			again = try == 0
		case state == "" && ctx.Err() != nil:
			b.pool.Reset() // other connections may be dead too
		}
		if !again || ctx.Err() != nil || try == maxTries-1 {
			err = b.failed(what, name, err)
			break
		}
	}
	if b.background.Err() != nil {
		return fmt.Errorf("postgres: %s %q: %w", what, name, driver.ErrClosed)
	}
	return err
}

// read is like ask, but f returns a value. If ctx ends, read returns at once while f goes on.
func read[T any](ctx context.Context, b *Backend, what, name string, f func(ctx context.Context, c *pgxpool.Conn) (T, error)) (none T, _ error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	run := func() {
		var a answer
		a.err = b.ask(ctx, what, name, func(ctx context.Context, c *pgxpool.Conn) (err error) {
			a.value, err = f(ctx, c)
			return err
		})
		answered <- a
	}
	if ctx.Err() == nil && !b.background.Go(run) {
		return none, driver.ErrClosed
	}
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("postgres: %s %q: %w: %w", what, name, driver.ErrUnavailable, context.Cause(ctx))
	}
}

var errSlow = errors.New("the server does not answer in time")

// PostgreSQL's error codes (SQLSTATE), named as in its manual.
const (
	protocolViolation    = "08P01"
	noStatement          = "26000"
	duplicateStatement   = "42P05"
	readOnly             = "25006"
	invalidSchema        = "3F000"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	insufficientRights   = "42501"
	undefinedFunction    = "42883"
	undefinedTable       = "42P01"
	noDatabase           = "3D000"
	undefinedObject      = "42704"
	noRole               = "28000"
	wrongPassword        = "28P01"
	lockNotAvailable     = "55P03"
	cannotConnectNow     = "57P03"
)

// advice maps the codes of errors that a retry does not cure to advice for the user.
var advice = map[string]string{
	wrongPassword:      "check username and password",
	noRole:             "check username, pg_hba.conf, and whether the server wants tls_enabled=true or the role a certificate (tls_cert_file)",
	noDatabase:         "create the database, or name another one in address",
	insufficientRights: "lockplugin-postgres ddl prints the rights that are needed",
}

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (b *Backend) unconnected(what, name string, err error) error {
	state := sqlState(err)
	switch {
	case errors.Is(err, driver.ErrNotSent), errors.Is(err, driver.ErrDenied):
		return fmt.Errorf("postgres: %s %q: %w", what, name, err)
	case advice[state] != "":
		return fmt.Errorf("postgres: %s %q: %w: %w: %w (%s)", what, name, driver.ErrDenied, driver.ErrNotSent, err, advice[state])
	case state == undefinedObject: // the server does not know a setting in the map session, or in the address
		return fmt.Errorf("postgres: %s %q: %w: %w: the server must be PostgreSQL 14 or later, and know each parameter of address: %w", what, name, driver.ErrDenied, driver.ErrNotSent, err)
	case state != "":
		return fmt.Errorf("postgres: %s %q: %w: %w: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return fmt.Errorf("postgres: %s %q: %w: %w: the server is read-only, a standby or in a failover; address must name the primary: %w",
			what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	if in := b.pool.Stat().AcquiredConns(); in >= b.pool.Config().MaxConns {
		return fmt.Errorf("postgres: %s %q: %w: %w: all %d connections wait for the server: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, in, err)
	}
	return fmt.Errorf("postgres: %s %q: %w", what, name, config.Unanswered("PostgreSQL server", err))
}

// failed returns the error of a statement. After an ERROR reply, the statement was rolled back and
// had no effect. If the connection broke, the statement may have been committed.
func (b *Backend) failed(what, name string, err error) error {
	var e *pgconn.PgError
	switch {
	case errors.Is(err, driver.ErrDenied), errors.Is(err, driver.ErrUnavailable):
		return fmt.Errorf("postgres: %s %q: %w", what, name, err)
	case !errors.As(err, &e) && pgconn.SafeToRetry(err):
		return fmt.Errorf("postgres: %s %q: %w: %w: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	case e == nil || e.SeverityUnlocalized != "ERROR":
		return fmt.Errorf("postgres: %s %q: %w: %w", what, name, driver.ErrUnavailable, err)
	case advice[e.Code] != "":
		return fmt.Errorf("postgres: %s %q: %w: %w: %w (%s)", what, name, driver.ErrDenied, driver.ErrNotSent, err, advice[e.Code])
	case e.Code == lockNotAvailable:
		return fmt.Errorf("postgres: %s %q: %w: %w: another transaction keeps the row locked: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return fmt.Errorf("postgres: %s %q: %w: %w: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
}
