package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
)

//go:embed schema.sql
var schema string

const (
	// The statement in alone takes an advisory lock, so that only one host at a time creates the
	// schema. Concurrent statements with IF NOT EXISTS may fail. The SQL function named in lastMade is
	// created last. If this function exists, the schema is complete, and the host creates nothing.
	alone    = "SELECT pg_advisory_xact_lock(7813564918211)"
	lastMade = "sweep1"
)

// migrate creates the missing parts of the schema if Options.CreateSchema allows it.
func (b *Backend) migrate(ctx context.Context) error {
	if !*b.opts.CreateSchema {
		return fmt.Errorf("%w: the schema lockbench or a part of it does not exist; lockplugin-postgres ddl prints what creates it", driver.ErrDenied)
	}
	b.making.Lock()
	defer b.making.Unlock()
	c, err := b.connection(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after a commit
	var made bool
	if _, err = tx.Exec(ctx, alone); err == nil {
		err = tx.QueryRow(ctx, "SELECT to_regproc('lockbench."+lastMade+"') IS NOT NULL").Scan(&made)
	}
	if err == nil && !made {
		_, err = tx.Exec(ctx, schema, pgx.QueryExecModeSimpleProtocol)
	}
	if sqlState(err) == insufficientRights {
		return fmt.Errorf("%w: the schema lockbench or a part of it does not exist, and the role may not create it; lockplugin-postgres ddl prints what does: %w", driver.ErrDenied, err)
	}
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func printDDL(cfg driver.Config, stdout io.Writer) error {
	o := optionsOf(cfg)
	if err := o.check(); err != nil {
		return fmt.Errorf("postgres: %w", config.Invalid(err))
	}
	settings, _, err := o.target("address", o.Address)
	if err != nil {
		return fmt.Errorf("postgres: %w", config.Invalid(err))
	}
	role := pgx.Identifier{settings.ConnConfig.User}.Sanitize()
	_, err = fmt.Fprintf(stdout, "%s\nGRANT USAGE ON SCHEMA lockbench TO %s;\nGRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockbench TO %[2]s;\n", schema, role)
	return err
}

// examine checks the role's rights. It begins with an acquire of the empty name, which no lock has.
func (b *Backend) examine(ctx context.Context, c *pgxpool.Conn) (may bool, _ error) {
	_, err := c.Exec(ctx, "SELECT lockbench.acquire1($1, ARRAY[$2::bytea], ARRAY['check'], ARRAY[0::bigint], ARRAY[NULL::bytea], ARRAY[NULL::bytea])", morePatience, b.key(""))
	if err != nil {
		return false, err
	}
	err = c.QueryRow(ctx, `SELECT bool_and(has_table_privilege('lockbench.' || t, p))
		FROM unnest(ARRAY['locks', 'tombstones', 'waiters', 'processes']) t, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p`).Scan(&may)
	if err == nil && !may {
		err = fmt.Errorf("%w: a right is missing on a table of the schema lockbench (%s)", driver.ErrDenied, advice[insufficientRights])
	}
	return may, err
}

// Check returns an error unless the server accepts writes, the schema exists or can be created, the
// role has its rights on the schema, and the address leads to only one server. It also returns an
// error if it finds that notices of grants do not reach waiters.
func (b *Backend) Check(ctx context.Context) error {
	if _, err := read(ctx, b, "check", b.opts.Prefix, b.examine); err != nil {
		return err
	}
	return errors.Join(b.identity.Recent(), b.listener.check(ctx))
}

const (
	// sweepEvery is the mean interval between two sweeps by one host. A sweep deletes expired rows.
	sweepEvery = time.Minute
	// purgePart is the mean number of sweeps per purge of the locks table.
	purgePart = 60
)

// sweep deletes expired rows at random times until Close, so that hosts do not all sweep at the
// same time. Even a process that lives for only a second sweeps sometimes.
func (b *Backend) sweep() {
	for pause := rand.N(sweepEvery); ; pause = sweepEvery/2 + rand.N(sweepEvery) {
		select {
		case <-b.background.Done():
			return
		case <-time.After(pause):
		}
		err := b.ask(b.background, "sweep", b.opts.Prefix, func(ctx context.Context, c *pgxpool.Conn) error {
			_, err := c.Exec(ctx, "SELECT lockbench.sweep1()")
			return err
		})
		if rand.N(purgePart) == 0 {
			err = errors.Join(err, b.purge())
		}
		if err != nil && b.background.Err() == nil {
			b.opts.Logger.Debug("postgres: dropping what is over", "err", err)
		}
	}
}

func (b *Backend) purge() (err error) {
	for last := []byte{}; last != nil && err == nil; {
		err = b.ask(b.background, "purge", b.opts.Prefix, func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT lockbench.purge1($1)", last).Scan(&last)
		})
	}
	return err
}
