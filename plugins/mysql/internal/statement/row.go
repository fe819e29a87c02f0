package statement

import (
	sqldriver "database/sql/driver"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// Row has the columns of a lock's row that a statement returned.
type Row struct {
	Name, Owner, Label string
	Attempt, FreedBy   uint64
	Token              uint64
	Left               time.Duration // until expires_at; negative when it has passed
	TTL                time.Duration // TTL of the last lease
	Queue              string
	Tombstones         bool
}

// Read reads the columns that [Inspect] and [List] return.
func Read(v []sqldriver.Value) Row {
	return Row{
		Name: conn.String(v[0]), Attempt: conn.Uint(v[1]), FreedBy: conn.Uint(v[2]), Owner: conn.String(v[3]), Token: conn.Uint(v[4]), Label: conn.String(v[5]),
		Left: time.Duration(conn.Int(v[6])) * time.Microsecond,
		TTL:  time.Duration(conn.Int(v[7])) * time.Microsecond, Queue: conn.String(v[8]), Tombstones: conn.Uint(v[9]) != 0,
	}
}

// Held reports whether the lock has a holder.
func (r Row) Held() bool { return r.Owner != "" && r.Left > 0 }

// Holder returns the holder of the lock, or the zero Holder when there is none.
func (r Row) Holder() driver.Holder {
	if !r.Held() {
		return driver.Holder{}
	}
	return driver.Holder{Name: r.Name, Owner: r.Owner, Label: r.Label, Token: r.Token, TTL: kit.UpToMillis(r.Left), Waiters: r.waiters()}
}

func (r Row) waiters() int { return strings.Count(r.Queue, ",") }

// Details fills r from text, which is the column of [Acquire]'s reply that describes a refused row.
func (r *Row) Details(text string) {
	parts := strings.Split(text, " ")
	if len(parts) != 6 {
		return
	}
	left, _ := strconv.ParseInt(parts[0], 10, 64)
	ttl, _ := strconv.ParseInt(parts[1], 10, 64)
	label, _ := hex.DecodeString(parts[3])
	r.Left, r.TTL = time.Duration(left)*time.Microsecond, time.Duration(ttl)*time.Microsecond
	r.Tombstones, r.Label, r.Owner, r.Queue = parts[2] == "1", string(label), parts[4], parts[5]
}

// Granted reports whether the row r contains the grant that the given operation asked for. It does
// if r.Attempt is a.Nonce. If an earlier statement may have done the operation (see Again), it also
// does if a.Owner holds the lock, unless the store made that grant to a waiter.
func (r Row) Granted(a Operation) bool {
	return r.Attempt == a.Nonce || a.Again && r.Held() && r.Owner == a.Owner && r.Attempt != StoreGrant
}
