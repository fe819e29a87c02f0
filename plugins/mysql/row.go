package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/millis"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// row is a lock as the store shows it.
type row struct {
	name, owner, label string
	attempt, freedBy   uint64
	token              uint64
	left               time.Duration // until expires_at; negative when it has passed
	ttl                time.Duration // of the last lease
	queue              string
	bars               bool // some owner was withdrawn from it
}

func readRow(v []sqldriver.Value) row {
	return row{
		name: conn.String(v[0]), attempt: conn.Uint(v[1]), freedBy: conn.Uint(v[2]), owner: conn.String(v[3]), token: conn.Uint(v[4]), label: conn.String(v[5]),
		left: time.Duration(conn.Int(v[6])) * time.Microsecond,
		ttl:  time.Duration(conn.Int(v[7])) * time.Microsecond, queue: conn.String(v[8]), bars: conn.Uint(v[9]) != 0,
	}
}

func (r row) held() bool { return r.owner != "" && r.left > 0 }

// holder describes who holds the lock, the zero Holder when nobody does.
func (r row) holder() driver.Holder {
	if !r.held() {
		return driver.Holder{}
	}
	return driver.Holder{Name: r.name, Owner: r.owner, Label: r.label, Token: r.token, TTL: millis.Up(r.left), Waiters: r.waiters()}
}

// next describes for whom a free lock is kept, the zero Holder when for none.
func (r row) next() driver.Holder {
	first, _, rest := r.first()
	kept := patienceOf(r.ttl) + r.left
	if !rest || kept <= 0 || r.left > 0 {
		return driver.Holder{}
	}
	return driver.Holder{Name: r.name, Owner: first, TTL: millis.Up(kept), Waiters: r.waiters()}
}

// first is the entry at the head of the queue.
func (r row) first() (owner string, bell uint64, ok bool) {
	entry, _, _ := strings.Cut(strings.TrimPrefix(r.queue, ","), ",")
	owner, number, ok := strings.Cut(entry, ".")
	bell, _ = strconv.ParseUint(number, 10, 64)
	return owner, bell, ok
}

func (r row) waiters() int { return strings.Count(r.queue, ",") }

// each calls f with the rows of names that there are.
func (b *Backend) each(ctx context.Context, s *conn.Session, names []string, f func(row)) error {
	return s.Query(ctx, inspectText(b.table, names...), func(v []sqldriver.Value) error {
		f(readRow(v))
		return nil
	})
}

func names(asks []ask) []string {
	all := make([]string, len(asks))
	for i, a := range asks {
		all[i] = a.Name
	}
	return all
}
