package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// server is what a new connection learns about the other end.
type server struct {
	id, version          string
	fsync, pages, commit string
}

func (s *server) durable() bool {
	return s.fsync == "on" && s.pages == "on" && s.commit != "off"
}

func (s *server) durability() string {
	return fmt.Sprintf("fsync=%s, full_page_writes=%s, synchronous_commit=%s", s.fsync, s.pages, s.commit)
}

// describe asks what a server is. It is known by when it was started and where it
// listens: a standby has the same data as its primary, and the same name for them.
const describe = `SELECT concat_ws(' ', current_setting('server_version_num'), inet_server_addr(), inet_server_port(), 'of', pg_postmaster_start_time()),
	current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')`

// through has connections made that lead to one server, also through a pooler.
func (b *Backend) through(c *pgxpool.Config) *pgxpool.Config {
	own := c.Copy()
	before := own.BeforeConnect
	own.BeforeConnect = func(ctx context.Context, fresh *pgx.ConnConfig) error {
		if b.pooled.Load() {
			fresh.DefaultQueryExecMode = pgx.QueryExecModeExec
			for key := range session {
				delete(fresh.RuntimeParams, key)
			}
		}
		return before(ctx, fresh)
	}
	own.AfterConnect = b.admit
	return own
}

// admit refuses a connection to another server than the one in use, while that serves.
func (b *Backend) admit(ctx context.Context, c *pgx.Conn) error {
	var s server
	err := c.QueryRow(ctx, describe).Scan(&s.id, &s.version, &s.fsync, &s.pages, &s.commit)
	if err != nil {
		return err
	}
	was := b.identity.Current()
	if err := b.identity.Admit(s.id, b.serves); err != nil {
		return err
	}
	b.server.Store(&s)
	if was != "" && was != s.id {
		b.pool.Reset()
	}
	return nil
}

// servesWithin bounds the question whether the server in use serves.
const servesWithin = 200 * time.Millisecond

// serves asks a connection that there is.
func (b *Backend) serves() bool {
	ctx, cancel := context.WithTimeout(b.background, servesWithin)
	defer cancel()
	ok := false
	for _, c := range b.pool.AcquireAllIdle(ctx) {
		ok = ok || c.Ping(ctx) == nil
		c.Release()
	}
	return ok
}

// connection is one of the pool. A pooler that refuses to be told of session is dialed
// again without.
func (b *Backend) connection(ctx context.Context) (*pgxpool.Conn, error) {
	c, err := b.pool.Acquire(ctx)
	if sqlState(err) == protocolViolation && strings.Contains(err.Error(), "startup parameter") && !b.pooled.Swap(true) {
		return b.pool.Acquire(ctx)
	}
	return c, err
}

// maxTries bounds how often what was rolled back is asked again.
const maxTries = 10

// ask runs f on a connection, for as long as a request may take: the end of ctx does
// not cut it off, for a statement without its client is not gone. What was certainly
// not done is done again where the reason is over by then. So f must be fit to run
// several times.
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
		c.Release()
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
			b.pooled.Store(true) // a pooler, which gave the call to a session that does not know it
			b.pool.Reset()
			again = true
		case state == serializationFailure, state == deadlockDetected:
			again = true
		case state == readOnly, state == cannotConnectNow:
			b.pool.Reset() // new connections may lead to a server that can be written to
			again = try == 0
		case state == "" && ctx.Err() != nil:
			b.pool.Reset() // what is as old may be as dead
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

var errSlow = errors.New("the server does not answer in time")

// The server's states, by the names in its manual.
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
	noRole               = "28000"
	wrongPassword        = "28P01"
	lockNotAvailable     = "55P03"
	cannotConnectNow     = "57P03"
)

// advice says what to do about a refusal that trying again does not cure.
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

// unconnected is the error of a connection that could not be made: nothing was sent.
func (b *Backend) unconnected(what, name string, err error) error {
	state := sqlState(err)
	switch {
	case errors.Is(err, driver.ErrNotSent), errors.Is(err, driver.ErrDenied):
		return fmt.Errorf("postgres: %s %q: %w", what, name, err)
	case advice[state] != "":
		return fmt.Errorf("postgres: %s %q: %w: %w: %w (%s)", what, name, driver.ErrDenied, driver.ErrNotSent, err, advice[state])
	case state != "":
		return fmt.Errorf("postgres: %s %q: %w: %w: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	case strings.Contains(err.Error(), "read only connection"):
		return fmt.Errorf("postgres: %s %q: %w: %w: the server is read-only, a standby or in a failover; address must name the primary: %w",
			what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	if in := b.pool.Stat().AcquiredConns(); in >= b.pool.Config().MaxConns {
		return fmt.Errorf("postgres: %s %q: %w: %w: all %d connections wait for the server: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, in, err)
	}
	return fmt.Errorf("postgres: %s %q: %w", what, name, kit.Unanswered("PostgreSQL server", err))
}

// failed is the error of a statement. The server has rolled back what it says an ERROR
// about; what ends the connection may have come behind the commit.
func (b *Backend) failed(what, name string, err error) error {
	var e *pgconn.PgError
	switch {
	case errors.Is(err, driver.ErrDenied), errors.Is(err, driver.ErrUnavailable):
		return fmt.Errorf("postgres: %s %q: %w", what, name, err)
	case !errors.As(err, &e) && pgconn.SafeToRetry(err):
		return fmt.Errorf("postgres: %s %q: %w: %w: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	case e == nil || e.Severity != "ERROR":
		return fmt.Errorf("postgres: %s %q: %w: %w", what, name, driver.ErrUnavailable, err)
	case advice[e.Code] != "":
		return fmt.Errorf("postgres: %s %q: %w: %w: %w (%s)", what, name, driver.ErrDenied, driver.ErrNotSent, err, advice[e.Code])
	case e.Code == lockNotAvailable:
		return fmt.Errorf("postgres: %s %q: %w: %w: another transaction keeps the row locked: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return fmt.Errorf("postgres: %s %q: %w: %w: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
}
