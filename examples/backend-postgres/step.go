package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/core/driver"
)

// query is a statement of a step, and what becomes of its answer.
type query struct {
	statement
	read func(pgx.BatchResults) error
}

// do ignores what the statement answers.
func do(s statement) query {
	return query{s, func(r pgx.BatchResults) error { _, err := r.Exec(); return err }}
}

// one reads the single value of at most one line. Without a line it stays zero.
func one[V any](s statement, v *V) query {
	return query{s, func(r pgx.BatchResults) error {
		err := r.QueryRow().Scan(v)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}}
}

func holder(h *driver.Holder) query {
	return query{inspect, func(r pgx.BatchResults) error {
		var all []driver.Holder
		err := holders(inspect, &all).read(r)
		if len(all) > 0 {
			*h = all[0]
		}
		return err
	}}
}

func holders(s statement, all *[]driver.Holder) query {
	return query{s, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h driver.Holder
			var name, label []byte
			var left int64
			if err := rows.Scan(&name, &h.Owner, &label, &h.Value, &h.Token, &left, &h.Waiters); err != nil {
				return err
			}
			h.Name, h.Label, h.TTL = string(name), string(label), time.Duration(left)*time.Millisecond
			*all = append(*all, h)
		}
		return rows.Err()
	}}
}

// step sends the queries together, as one transaction in one round trip. No lock
// of a row is ever kept while the server waits for this process, which may have
// been stopped.
func (b *backend) step(ctx context.Context, operation string, r driver.Request, queries ...query) error {
	err := b.try(ctx, r, queries)
	if missing(err) {
		// The transaction has failed as a whole, so it may be repeated.
		if err = b.migrate(ctx); err == nil {
			err = b.try(ctx, r, queries)
		}
	}
	if err == nil {
		return nil
	}
	return b.failed(operation, r.Name, err)
}

func (b *backend) try(ctx context.Context, r driver.Request, queries []query) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	defer conn.Release()
	arguments := pgx.NamedArgs{
		"prefix": b.prefix, "name": []byte(r.Name), "owner": r.Owner, "label": []byte(r.Label), "value": r.Value,
		"token": int64(r.Token), "ttl": r.TTL.Microseconds(), "keep": r.Keep.Microseconds(), "host": b.channel,
		"counter": int64(counterOf(b.prefix, r.Name)),
	}
	batch := &pgx.Batch{}
	for _, q := range queries {
		batch.Queue(string(q.statement), arguments)
	}
	results := conn.SendBatch(ctx, batch)
	for _, q := range queries {
		if err := q.read(results); err != nil {
			_ = results.Close() // says the same once more
			return err
		}
	}
	// The commit is behind the last answer: until Close has seen it nothing of
	// what was read has happened.
	return results.Close()
}

// migrate makes the schema and the counters, each in one transaction. CREATE ... IF
// NOT EXISTS is no protection from others who do the same: two can see that it does
// not exist. So the first statement fails for all but one, which is who made it.
func (b *backend) migrate(ctx context.Context) error {
	made := []string{"42P06", "42P07", "42710", "23505"} // duplicate schema, table, object; unique_violation
	for _, script := range []string{schema, counters} {
		if _, err := b.pool.Exec(ctx, script); err != nil && !slices.Contains(made, sqlState(err)) {
			return err
		}
	}
	return nil
}

// missing reports that the schema is not there.
func missing(err error) bool {
	state := sqlState(err)
	return state == "42P01" || state == "3F000" // undefined_table, invalid_schema_name
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// failed says what an error means to core: refused, not sent, or unknown. None of
// the client's messages has a password in it.
func (b *backend) failed(operation, name string, err error) error {
	if b.closed.Err() != nil {
		return fmt.Errorf("postgres: %s %q: %w", operation, name, driver.ErrClosed)
	}
	sentinel := driver.ErrUnavailable
	switch state := sqlState(err); {
	case len(state) == 5 && state[:2] == "28", // invalid authorization
		state == "42501", // insufficient_privilege
		state == "3D000", // no such database
		state == "25006": // read_only_sql_transaction
		sentinel = driver.ErrDenied
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("postgres: %s %q: %w: %w: %w", operation, name, sentinel, driver.ErrNotSent, err)
	}
	return fmt.Errorf("postgres: %s %q: %w: %w", operation, name, sentinel, err)
}
