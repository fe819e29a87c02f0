package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

func tableName(prefix string) string { return "`" + prefix + "locks`" }

func printDDL(cfg driver.Config, stdout io.Writer) error {
	o := optionsOf(cfg)
	dial, err := o.target()
	if err != nil {
		return fmt.Errorf("mysql: %w", config.Invalid(err))
	}
	table := "`" + strings.ReplaceAll(dial.DBName, "`", "``") + "`." + tableName(o.Prefix)
	user := strings.ReplaceAll(dial.User, "'", "''")
	if user == "" {
		user = "USER"
	}
	_, err = fmt.Fprintf(stdout, "%s;\nGRANT SELECT, INSERT, UPDATE, DELETE ON %s TO '%s';\n", statement.Create(table), table, user)
	return err
}

func (k *link) create(ctx context.Context, s *conn.Session) error {
	if !*k.opts.CreateTable {
		return fmt.Errorf("mysql: %w: table %s does not exist; lockplugin-mysql ddl prints what creates it", driver.ErrDenied, k.table)
	}
	_, _, err := s.Exec(ctx, statement.Create(k.table))
	switch conn.Number(err) {
	case 0:
		return err
	case conn.ErTableAccessDenied, conn.ErDBAccessDenied, conn.ErSpecificAccess:
		return fmt.Errorf("mysql: %w: table %s does not exist, and the user may not create it; lockplugin-mysql ddl prints what does: %w", driver.ErrDenied, k.table, err)
	}
	return conn.StatementError("create table", k.table, err)
}

const (
	// purgeEvery is the mean time between two purges by one host. A purge deletes unused rows.
	purgeEvery = time.Hour
	// purgeAtOnce is the largest number of rows that one statement of a purge reads or locks.
	purgeAtOnce = 500
)

// tidy purges rows and closes idle connections until ctx ends. Each host purges at random times, so
// that hosts do not all purge at the same time.
func (b *Backend) tidy(ctx context.Context) {
	idle := time.NewTicker(idleFor / 2)
	defer idle.Stop()
	next := time.NewTimer(rand.N(purgeEvery))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			b.pool.Trim(idleFor, 1)
			b.waits.Trim(idleFor, 0)
		case <-next.C:
			next.Reset(purgeEvery/2 + rand.N(purgeEvery))
			if n, err := b.purge(ctx); err != nil && ctx.Err() == nil {
				b.opts.Logger.Warn("mysql: purging unused rows", "purged", n, "err", err)
			}
		}
	}
}

// purge deletes rows that have been free for a day. It reads the table once,
// ordered by name.
func (b *Backend) purge(ctx context.Context) (int, error) {
	total := 0
	for after, rows := "", purgeAtOnce; rows == purgeAtOnce; {
		var names []string
		err := b.on(ctx, b.pool.Get, func(ctx context.Context, s *conn.Session) (err error) {
			last := after
			if names, rows, err = b.idlers(ctx, s, &last); err != nil {
				return err
			}
			if len(names) > 0 {
				if _, _, err = s.Exec(ctx, statement.Purge(b.table, names)); err != nil {
					return err
				}
			}
			after = last
			return nil
		})
		if err != nil {
			return total, err
		}
		total += len(names)
	}
	return total, nil
}

// idlers reads the next rows, whose names follow *after. It sets *after to the last name read, and
// returns the names of unused rows. Unlike a DELETE, it does not lock the rows that it reads.
func (b *Backend) idlers(ctx context.Context, s *conn.Session, after *string) (names []string, rows int, err error) {
	err = s.Query(ctx, statement.Unused(b.table, *after, purgeAtOnce), func(v []sqldriver.Value) error {
		*after = conn.String(v[0])
		rows++
		if conn.Uint(v[1]) == 1 {
			names = append(names, *after)
		}
		return nil
	})
	return names, rows, err
}
