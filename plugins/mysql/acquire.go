package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

func (b *Backend) runAcquires(ctx context.Context, s *conn.Session, ops []statement.Operation) ([]driver.Result, func(), error) {
	long := false
	for _, a := range ops {
		long = long || b.contended.Has(a.Name)
	}
	if len(ops) == 1 && !long && b.rows.Has(ops[0].Name) {
		n, token, err := s.Exec(ctx, statement.Take(b.table, ops[0]))
		if err != nil || n > 0 {
			return []driver.Result{{Token: token}}, nil, err
		}
	}
	rows, err := b.attempt(ctx, s, ops, long)
	if err != nil {
		return nil, nil, err
	}
	if err := b.askInFull(ctx, s, ops, rows, long); err != nil {
		return nil, nil, err
	}
	results := make([]driver.Result, len(ops))
	for i, a := range ops {
		r := rows[i]
		switch {
		case r.Granted(a):
			results[i].Token = r.Token
			b.rows.Put(a.Name, struct{}{})
			continue
		case r.Held() && r.Owner == a.Owner && r.Attempt == statement.StoreGrant:
			found, token, err := s.Exec(ctx, statement.Confirm(b.table, a))
			if err != nil {
				return nil, nil, err
			}
			if found > 0 {
				results[i].Token = token
				continue
			}
		case r.Tombstones:
			withdrawn, err := b.withdrawn(ctx, s, a)
			if err != nil {
				return nil, nil, err
			}
			if withdrawn {
				results[i].Err = fmt.Errorf("mysql: acquire %q: %w", a.Name, driver.ErrWithdrawn)
				continue
			}
		}
		b.contended.Put(a.Name, struct{}{}) // a refused owner may wait
		results[i].Err = &driver.HeldError{Holder: r.Holder()}
	}
	return results, nil, nil
}

// askInFull sends a refused acquire again, with the long text of [statement.Acquire], if the lock
// is free or its lease has more than its TTL left. If the long text does not take a free lock
// either, askInFull grants the lock to its first waiter (perhaps an owner in ops) and tries again.
func (b *Backend) askInFull(ctx context.Context, s *conn.Session, ops []statement.Operation, rows []statement.Row, long bool) error {
	const most = 3 // another host may be quicker each time
	for range most {
		var again []statement.Operation
		var at []int
		for i, r := range rows {
			switch {
			case r.Granted(ops[i]), r.Held() && (long || r.Left <= r.TTL), long && r.Queue == "":
				continue
			case long:
				if err := b.grant(ctx, s, r.Name, statement.Look); err != nil {
					return err
				}
			}
			again, at = append(again, ops[i]), append(at, i)
		}
		if again == nil {
			return nil
		}
		long = true
		fresh, err := b.attempt(ctx, s, again, long)
		if err != nil {
			return err
		}
		for i, r := range fresh {
			rows[at[i]], ops[at[i]] = r, again[i]
		}
	}
	return nil
}

func (b *Backend) attempt(ctx context.Context, s *conn.Session, ops []statement.Operation, long bool) ([]statement.Row, error) {
	base := newNonce() >> statement.NonceBits
	at := make(map[string]int, len(ops))
	for i := range ops {
		ops[i].Nonce = base<<statement.NonceBits | uint64(i)
		at[ops[i].Name] = i
	}
	rows := make([]statement.Row, len(ops))
	err := s.Query(ctx, statement.Acquire(b.table, ops, base, long, s.Server.MariaDB), func(v []sqldriver.Value) error {
		name := conn.String(v[0])
		r := statement.Row{Name: name, Attempt: conn.Uint(v[1]), Token: conn.Uint(v[2])}
		r.Details(conn.String(v[3]))
		rows[at[name]] = r
		return nil
	})
	return rows, err
}

func (b *Backend) withdrawn(ctx context.Context, s *conn.Session, a statement.Operation) (yes bool, err error) {
	err = s.Query(ctx, statement.Withdrawn(b.table, a.Request), func(v []sqldriver.Value) error {
		yes = conn.Uint(v[0]) == 0
		return nil
	})
	return yes, err
}
