package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// leases acquires n locks and returns the operations that renew them.
func leases(t *testing.T, b *mysql.Backend, n int) []driver.Op {
	t.Helper()
	ops := make([]driver.Op, n)
	for i := range ops {
		ops[i] = driver.Op{Kind: driver.OpAcquire, Request: want(fmt.Sprint("job/", i), time.Minute)}
	}
	for i, r := range b.Batch(t.Context(), ops) {
		require(t, r.Err)
		ops[i].Kind, ops[i].Token = driver.OpRenew, r.Token
	}
	return ops
}

func kills(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	var name string
	require(t, db.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_kill'").Scan(&name, &n))
	return n
}

// TestRenewalsOfABusyServer checks that the backend does not kill and repeat renewals that a slow
// server answers within SlowestAfter. The test ignores a slower answer, because it means that the
// test's machine was busy.
func TestRenewalsOfABusyServer(t *testing.T) {
	s := own(t, &mysqlserver.Options{})
	b, db := open(t, mysql.Options{Address: mysqlserver.Address(s)}), connect(t, mysqlserver.Address(s))
	defer db.Close()
	renewals := leases(t, b, 300)
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		before := kills(t, db)
		require(t, s.Freeze())
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		began := time.Now()
		resumed := time.AfterFunc(150*time.Millisecond, func() { require(t, s.Resume()) })
		for _, r := range b.Batch(ctx, renewals) {
			require(t, r.Err)
		}
		took := time.Since(began)
		cancel()
		if resumed.Stop() {
			t.Fatal("renewed by a frozen server")
		}
		if took >= mysql.SlowestAfter {
			continue
		}
		if n := kills(t, db) - before; n > 0 {
			t.Errorf("%d statements were killed, and all was answered after %v", n, took)
		}
		return
	}
	t.Skipf("this machine never answered within %v", mysql.SlowestAfter)
}

// TestRenewalsBesideALockedRow checks that leases are renewed while another client keeps one other
// row locked. With innodb_snapshot_isolation, which MariaDB 11.8 sets by default, every statement
// that reads a locked row waits for that row.
func TestRenewalsBesideALockedRow(t *testing.T) {
	w := fixtureAt(t, mysqlserver.Address(own(t, &mysqlserver.Options{Args: []string{"--loose-innodb-snapshot-isolation=ON"}})))
	renewals := leases(t, w.b, 300)
	const locked = 123
	unlock := w.lockRow(t, renewals[locked].Name)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	for i, r := range w.b.Batch(ctx, renewals) {
		if (r.Err == nil) == (i == locked) {
			t.Errorf("renewal %d of a batch in which %d is locked: %v", i, locked, r.Err)
		}
	}
}
