package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// acquireText asks for many names at once, one row for each. A row is taken
// when nobody holds it, its owner is not barred, and nobody else's turn is now.
//
// Assignments are made from left to right and see the ones before them. So the
// first one decides, by leaving the request's own random number in attempt,
// and all others follow it; expires_at and owner, which it decided on, come
// last.
//
// The numbers of one statement have base in common, above nonceBits: by that
// the reply tells details only of the rows that were refused.
//
// There are two texts, because to a statement for one row its length matters.
// The short one takes rows in which there is nothing but an end that has
// passed, and refuses all others; the long one knows everything.
func acquireText(table string, asks []ask, base uint64, long, mariadb bool) string {
	var t text
	t.add("INSERT INTO ", table, "(name,owner,token,expires_at,attempt,ttl_us,label,value)VALUES")
	for i, a := range asks {
		if i > 0 {
			t.add(",")
		}
		t.add("(").bytes(a.Name).add(",'", a.Owner, "',", micros, ",").later(a.TTL).add(",").uint(a.nonce).add(",")
		t.uint(uint64(a.TTL.Microseconds())).add(",").bytes(a.Label).add(",").blob(a.Value).add(")")
	}
	if long {
		t.add(onTakenLong)
	} else {
		t.add(onTakenShort)
	}
	reply := "name,attempt,token,IF(attempt>>" + strconv.Itoa(nonceBits) + "=" + strconv.FormatUint(base, 10) + ",NULL," + details + ")"
	if mariadb {
		return t.add(" RETURNING ", reply).String()
	}
	return t.add(";SELECT ", reply, " FROM ", table, " WHERE name IN(").list(names(asks)).add(")").String()
}

const (
	// nonceBits number the requests of one statement.
	nonceBits = 16

	// details are one column because columns cost more than what is in them.
	details = "CONCAT_WS(' ',TIMESTAMPDIFF(MICROSECOND," + now + ",expires_at),ttl_us,barred<>'',HEX(label),owner,queue)"

	onTakenShort = " ON DUPLICATE KEY UPDATE attempt=IF(expires_at<=" + now + " AND queue='' AND barred='',VALUES(attempt),attempt)," +
		taken + ",expires_at=" + ifTaken + "VALUES(expires_at),expires_at),owner=" + ifTaken + "VALUES(owner),owner)"

	onTakenLong = " ON DUPLICATE KEY UPDATE attempt=IF(" + free +
		" AND LOCATE(CONCAT(',',VALUES(owner),','),barred)=0 AND LOCATE(CONCAT(',',VALUES(owner),','),barred_old)=0" +
		" AND(queue='' OR LOCATE(CONCAT(',',VALUES(owner),'.'),queue)=1" +
		" OR expires_at NOT BETWEEN " + now + "-INTERVAL " + patience + " MICROSECOND AND " + now + ")" +
		",VALUES(attempt),attempt)," +
		// Whoever stood before the new holder has let its turn pass: one that is
		// not in the queue itself passes the first. SUBSTRING from 0 is empty.
		"queue=" + ifTaken + "SUBSTRING(queue,LOCATE(',',queue,GREATEST(LOCATE(CONCAT(',',VALUES(owner),'.'),queue),1)+1)),queue)," +
		"barred_old=IF(barred<>'' AND barred_since<" + now + "-INTERVAL 2 MINUTE,'',barred_old)," +
		"barred=IF(barred<>'' AND barred_since<" + now + "-INTERVAL 2 MINUTE,'',barred)," +
		// No lease has more than its TTL before it: else the clock was turned
		// back, and it ends a TTL from now at the latest.
		"expires_at=" + ifTaken + "VALUES(expires_at)," +
		"IF(owner<>'' AND expires_at>" + now + "+INTERVAL ttl_us MICROSECOND," + now + "+INTERVAL ttl_us MICROSECOND,expires_at))," +
		taken + ",owner=" + ifTaken + "VALUES(owner),owner)"

	taken = "token=" + ifTaken + "GREATEST(token+1,VALUES(token)),token)," +
		"label=" + ifTaken + "VALUES(label),label)," +
		"value=" + ifTaken + "VALUES(value),value)," +
		"ttl_us=" + ifTaken + "VALUES(ttl_us),ttl_us)"
	ifTaken = "IF(attempt=VALUES(attempt),"
)

func (b *Backend) runAcquires(ctx context.Context, s *conn.Session, asks []ask) ([]driver.Result, func(), error) {
	sorted, from := inOrder(asks)
	long := false
	for _, a := range sorted {
		long = long || b.busy.is(a.Name)
	}
	rows, err := b.attempt(ctx, s, sorted, long)
	if err != nil {
		return nil, nil, err
	}
	if !long {
		if err := b.insist(ctx, s, sorted, rows); err != nil {
			return nil, nil, err
		}
	}
	results := make([]driver.Result, len(asks))
	for i, a := range sorted {
		r := rows[i]
		switch {
		case r.granted(a):
			results[from[i]].Token = r.token
			continue
		case r.bars:
			withdrawn, err := b.withdrawn(ctx, s, a)
			if err != nil {
				return nil, nil, err
			}
			if withdrawn {
				results[from[i]].Err = fmt.Errorf("mysql: acquire %q: %w", a.Name, driver.ErrWithdrawn)
				continue
			}
		}
		b.busy.mark(a.Name) // whoever was refused may wait
		results[from[i]].Err = &driver.HeldError{Holder: r.refusal()}
	}
	return results, nil, nil
}

// insist asks again, at length, for what the short text has refused although
// nobody holds it.
func (b *Backend) insist(ctx context.Context, s *conn.Session, asks []ask, rows []row) error {
	var again []ask
	var at []int
	for i, r := range rows {
		if !r.granted(asks[i]) && (!r.held() || r.left > r.ttl) {
			again, at = append(again, asks[i]), append(at, i)
		}
	}
	if again == nil {
		return nil
	}
	fresh, err := b.attempt(ctx, s, again, true)
	if err != nil {
		return err
	}
	for i, r := range fresh {
		rows[at[i]], asks[at[i]] = r, again[i]
	}
	return nil
}

// attempt numbers asks, sends them and returns the rows as they are then.
func (b *Backend) attempt(ctx context.Context, s *conn.Session, asks []ask, long bool) ([]row, error) {
	base := newNonce() >> nonceBits
	places := make(map[string]int, len(asks))
	for i := range asks {
		asks[i].nonce = base<<nonceBits | uint64(i)
		places[asks[i].Name] = i
	}
	rows := make([]row, len(asks))
	err := s.Query(ctx, acquireText(b.table, asks, base, long, s.Server.MariaDB), func(v []sqldriver.Value) error {
		name := conn.String(v[0])
		r := row{name: name, attempt: conn.Uint(v[1]), token: conn.Uint(v[2])}
		r.details(conn.String(v[3]))
		rows[places[name]] = r
		return nil
	})
	return rows, err
}

// details reads what details has told.
func (r *row) details(text string) {
	parts := strings.Split(text, " ")
	if len(parts) != 6 {
		return
	}
	left, _ := strconv.ParseInt(parts[0], 10, 64)
	ttl, _ := strconv.ParseInt(parts[1], 10, 64)
	label, _ := hex.DecodeString(parts[3])
	r.left, r.ttl = time.Duration(left)*time.Microsecond, time.Duration(ttl)*time.Microsecond
	r.bars, r.label, r.owner, r.queue = parts[2] == "1", string(label), parts[4], parts[5]
}

// granted tells whether r is a's grant. The owner alone is proof only where an
// earlier statement for the same request may have been carried out.
func (r row) granted(a ask) bool {
	return r.attempt == a.nonce || a.again && r.held() && r.owner == a.Owner
}

// refusal describes who holds the lock, or for whom it is kept.
func (r row) refusal() driver.Holder {
	if r.held() {
		return r.holder()
	}
	return r.next()
}

// withdrawn asks whether a's owner was withdrawn.
func (b *Backend) withdrawn(ctx context.Context, s *conn.Session, a ask) (yes bool, err error) {
	var t text
	t.add("SELECT ", unbarred(a.Owner), " FROM ", b.table, " WHERE name=").bytes(a.Name)
	err = s.Query(ctx, t.String(), func(v []sqldriver.Value) error {
		yes = conn.Uint(v[0]) == 0
		return nil
	})
	return yes, err
}
