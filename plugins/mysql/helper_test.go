package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

func want(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: rand.Text(), Label: "host-1:77", TTL: ttl}
}

func release(t testing.TB, b driver.Backend, r driver.Request) {
	t.Helper()
	if err := b.Release(t.Context(), r); err != nil {
		t.Fatalf("release %q: %v", r.Name, err)
	}
}

var (
	must       = backendtest.Must
	eventually = backendtest.Eventually
	acquire    = backendtest.Acquire
	held       = backendtest.Held
)

const timeout = backendtest.Timeout

func throughout(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); pause(t, 5*time.Millisecond) {
		if !ok() {
			t.Fatalf("not for %v: %s", d, what)
		}
	}
}

func pause(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// asleep is a text that only the statement of a sleeping waiter contains.
const asleep = " AS slept"

// blocked returns the number of other connections' running statements that contain the text.
func blocked(t testing.TB, db *sql.DB, text string) (n int) {
	t.Helper()
	err := db.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() AND INFO LIKE CONCAT('%',?,'%')", text).Scan(&n)
	must(t, err)
	return n
}

// fixture is a table with one host and a separate connection for the test.
type fixture struct {
	address, prefix string
	b               *mysql.Backend
	db              *sql.DB
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return fixtureAt(t, address(t))
}

func fixtureAt(t *testing.T, a string) *fixture {
	t.Helper()
	w := &fixture{address: a, prefix: fresh(t, a), db: connect(t, a)}
	t.Cleanup(func() { w.db.Close() })
	w.b = w.host(t)
	return w
}

func (w *fixture) host(t drivertest.T) *mysql.Backend {
	return open(t, mysql.Options{Address: w.address, Prefix: w.prefix})
}

// patient opens another host, which waits up to a minute for an answer and lets the server wait up
// to a minute for a row lock. So a call that ends earlier has not waited for a locked row.
func (w *fixture) patient(t *testing.T) *mysql.Backend {
	t.Helper()
	b, err := mysql.OpenWith(mysql.Options{
		Address: w.address, Prefix: w.prefix, Connect: mysql.Connect{DialTimeout: time.Minute, RequestTimeout: time.Minute},
		Logger: slog.New(slog.DiscardHandler),
	}, "SET SESSION innodb_lock_wait_timeout=60;")
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

func (w *fixture) lockRow(t *testing.T, name string) (unlock func()) {
	t.Helper()
	tx, err := w.db.BeginTx(context.Background(), nil)
	must(t, err)
	var owner string
	must(t, tx.QueryRow("SELECT owner FROM "+table(w.prefix)+" WHERE name=? FOR UPDATE", []byte(name)).Scan(&owner))
	t.Cleanup(func() { _ = tx.Rollback() }) // fails if tx was committed
	return func() {
		must(t, tx.Commit())
	}
}

func (w *fixture) kill(t *testing.T, text string) (killed int) {
	t.Helper()
	rows, err := w.db.Query("SELECT ID FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() AND INFO LIKE CONCAT('%',?,'%')", text)
	must(t, err)
	var ids []int64
	for rows.Next() {
		var id int64
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	must(t, errors.Join(rows.Err(), rows.Close()))
	for _, id := range ids {
		if _, err := w.db.Exec("KILL CONNECTION ?", id); err == nil {
			killed++
		}
	}
	return killed
}
