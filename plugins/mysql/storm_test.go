package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/mysql"
)

func status(t *testing.T, db *sql.DB, name string) int {
	t.Helper()
	var ignored, value string
	must(t, db.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&ignored, &value))
	n, err := strconv.Atoi(value)
	must(t, err)
	return n
}

// TestCancelledWaiters lets 300 callers of one host wait for 300 locks, and give up all at once.
// The host must keep to its limit of connections, and so leave some to other clients.
func TestCancelledWaiters(t *testing.T) {
	s := own(t, nil)
	a := mysqlserver.Address(s)
	db := connect(t, a)
	defer db.Close()
	const callers, connections, waits = 300, 16, 32
	holder := open(t, mysql.Options{Address: a})
	for i := range callers {
		acquire(t, holder, want(fmt.Sprint("job/", i), time.Minute))
	}
	must(t, holder.Close(t.Context()))
	if _, err := db.Exec("FLUSH STATUS"); err != nil {
		t.Fatal(err)
	}
	b := open(t, mysql.Options{Address: a, Connections: connections, WaitConnections: waits})
	var slow atomic.Int64 // withdrawals that may have needed a tombstone
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var all, waiting sync.WaitGroup
		for i := range callers {
			waiting.Add(1)
			all.Go(func() {
				r := want(fmt.Sprint("job/", i), time.Second)
				held(t, second(b.TryAcquire(ctx, r)))
				time.AfterFunc(200*time.Millisecond, waiting.Done)
				for ctx.Err() == nil {
					if _, err := b.Wait(ctx, r, time.Second); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
				began := time.Now()
				if err := b.Withdraw(context.Background(), r.Name, r.Owner); err != nil {
					t.Errorf("withdrawing: %v", err)
				}
				if time.Since(began) >= mysql.SettleFor {
					slow.Add(1)
				}
			})
		}
		waiting.Wait()
		cancel()
		all.Wait()
	}
	// The backend may open five more for withdrawals, kills and signs of life. The test opens one.
	if most := status(t, db, "Max_used_connections"); most > connections+waits+5+1 {
		t.Errorf("%d connections, and the limits are %d and %d", most, connections, waits)
	}
	var rows, queues, tombstones int
	must(t, db.QueryRow("SELECT COUNT(*),SUM(LENGTH(queue)),SUM(LENGTH(barred)) FROM `lockbench_locks`").Scan(&rows, &queues, &tombstones))
	tombstone := len("," + want("", 0).Owner + ",")
	if rows != callers || queues != 0 || tombstones > tombstone*int(slow.Load()) {
		t.Errorf("%d rows, with %d bytes of queues and %d of tombstones, each of %d: waiters that were refused need none, but for %d withdrawals that took long",
			rows, queues, tombstones, tombstone, slow.Load())
	}
}

// TestShortContexts lets 64 callers on four hosts repeatedly call Acquire for one held lock, with
// contexts of less than 50 ms. The holder must keep its lease, release it, and get the lock again.
func TestShortContexts(t *testing.T) {
	w := newFixture(t)
	logger := slog.New(slog.DiscardHandler)
	keeper := core.New(w.host(t), &core.Options{Logger: logger})
	defer keeper.Close(context.Background())
	lock := func(c *core.Client) *core.Lock {
		l, err := c.Lock("jobs", &core.LockOptions{TTL: 5 * time.Second})
		must(t, err)
		return l
	}
	lease, err := lock(keeper).Acquire(t.Context())
	must(t, err)
	storm, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for range 4 {
		c := core.New(w.host(t), &core.Options{Logger: logger})
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		for range 16 {
			all.Go(func() {
				for storm.Err() == nil {
					ctx, cancel := context.WithTimeout(storm, rand.N(50*time.Millisecond))
					if l, err := lock(c).Acquire(ctx); err == nil {
						_ = l.Release(context.Background())
					}
					cancel()
				}
			})
		}
	}
	pause(t, time.Duration(number("LOCKBENCH_MYSQL_CONTEND", 4))*2*time.Second)
	if !lease.Valid() {
		t.Errorf("the holder's lease of 5s: %v", lease.Err())
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("releasing in the storm: %v", err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if lease, err = lock(keeper).Acquire(ctx); err != nil {
		t.Errorf("acquiring in the storm: %v", err)
	} else {
		t.Logf("acquired in the storm after %v", time.Since(began))
		_ = lease.Release(t.Context())
	}
	stop()
	all.Wait()
	var tombstones int
	must(t, w.db.QueryRow("SELECT LENGTH(barred)+LENGTH(barred_old) FROM "+table(w.prefix)).Scan(&tombstones))
	if t.Logf("%d bytes of tombstones", tombstones); tombstones > 64<<10 {
		t.Errorf("%d bytes of tombstones are read by each statement", tombstones)
	}
}

// slowRoad returns the address of a proxy that delays all data to and from the server (to).
func slowRoad(t *testing.T, to string, delay time.Duration) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	pipe := func(dst, src net.Conn) {
		defer dst.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			time.Sleep(delay)
			if _, failed := dst.Write(buf[:n]); failed != nil || err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go pipe(up, c)
			go pipe(c, up)
		}
	}()
	return l.Addr().String()
}

// TestDialsEndByThemselves lets callers give up during handshakes. The backend must complete
// each handshake, because MariaDB blocks a machine after max_connect_errors aborted handshakes.
func TestDialsEndByThemselves(t *testing.T) {
	s := own(t, nil)
	db := connect(t, mysqlserver.Address(s))
	defer db.Close()
	// Connections were also aborted while the test waited for the server's start. The server counts
	// them when it closes them, so wait until only this connection is open.
	eventually(t, "no connection but this one", func() bool { return status(t, db, "Threads_connected") == 1 })
	before := status(t, db, "Aborted_connects")
	far := changed(t, mysqlserver.Address(s), func(c *mysqldriver.Config) { c.Addr = slowRoad(t, s.Addr(), 4*time.Millisecond) })
	for round := range 3 {
		name := fmt.Sprint("jobs ", round) // an abandoned acquire may still take the lock
		b := open(t, mysql.Options{Address: far})
		holder := want(name, time.Minute)
		holder.Token, _ = b.TryAcquire(t.Context(), holder)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for end := time.Now().Add(time.Second); time.Now().Before(end); {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(16*time.Millisecond))
					r := want(name, time.Second)
					_, _ = b.TryAcquire(ctx, r)
					_, _ = b.Wait(ctx, r, time.Second)
					cancel()
				}
			})
		}
		all.Wait()
		release(t, b, holder)
	}
	if n := status(t, db, "Aborted_connects") - before; n > 0 {
		t.Errorf("%d connections were cut in their handshake", n)
	}
	if n := status(t, db, "Connections"); n > 3*(16+32+5)+5 {
		t.Errorf("%d connections were made", n)
	}
}

// TestManyLockedRows lets another client's transaction lock more rows than the host has
// connections, and lets a caller acquire each of these locks. Leases of other locks must
// be renewed meanwhile. When the transaction ends, the callers must get their locks.
func TestManyLockedRows(t *testing.T) {
	w := newFixture(t)
	const locked, others, ttl = 40, 20, 2 * time.Second
	name := func(i int) string { return fmt.Sprint("locked/", i) }
	mine := make([]driver.Request, locked/2) // the host itself holds half of them
	for i := range locked {
		r := acquire(t, w.b, want(name(i), time.Minute))
		if i < len(mine) {
			mine[i] = r
		} else {
			release(t, w.b, r)
		}
	}
	c := core.New(w.host(t), &core.Options{Logger: slog.New(slog.DiscardHandler)})
	defer c.Close(context.Background())
	var leases []*core.Lease
	for i := range others {
		l, err := c.Lock(fmt.Sprint("apart/", i), &core.LockOptions{TTL: ttl})
		must(t, err)
		lease, err := l.Acquire(t.Context())
		must(t, err)
		leases = append(leases, lease)
	}
	tx, err := w.db.BeginTx(t.Context(), nil)
	must(t, err)
	if _, err := tx.Exec("SELECT COUNT(*) FROM " + table(w.prefix) + " WHERE name LIKE 'locked/%' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var all sync.WaitGroup
	for i := range locked {
		l, err := c.Lock(name(i), &core.LockOptions{TTL: ttl})
		must(t, err)
		all.Go(func() {
			lease, err := l.Acquire(ctx)
			if err != nil {
				t.Errorf("%q when the transaction was over: %v", name(i), err)
				return
			}
			_ = lease.Release(context.Background())
		})
	}
	for _, r := range mine { // also renewals and withdrawals of locked rows
		all.Go(func() {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_ = w.b.Renew(short, r)
			_ = w.b.Withdraw(short, r.Name, want(r.Name, ttl).Owner)
		})
	}
	pause(t, 2*ttl)
	for i, lease := range leases {
		if !lease.Valid() {
			t.Errorf("lease %d of %d, on a row that nobody has locked: %v", i, others, lease.Err())
		}
	}
	must(t, tx.Rollback())
	for _, r := range mine {
		release(t, w.b, r)
	}
	all.Wait()
}

// TestThousandsOfLockedRows lets one host ask, through the shipped plugin, for 6,000
// locks whose rows another client's transaction keeps locked. The host's 200 leases
// of other locks must be renewed, because the plugin limits renewals separately.
func TestThousandsOfLockedRows(t *testing.T) {
	w := newFixture(t)
	const others = 200
	locked, ttl := 6000, 2*time.Second
	if plugintest.Race {
		locked, ttl = 4500, 6*ttl // all this runs on one processor, beside other tests
	}
	var rows strings.Builder
	rows.WriteString("INSERT INTO " + table(w.prefix) + "(name,expires_at)VALUES")
	for i := range locked {
		if i > 0 {
			rows.WriteByte(',')
		}
		fmt.Fprintf(&rows, "('locked/%d',UTC_TIMESTAMP(6))", i)
	}
	if _, err := w.db.Exec(rows.String()); err != nil {
		t.Fatal(err)
	}
	b := plugintest.Open(t, "mysql", &plugin.Options{
		Path: plugintest.Build(t, "./lockplugin-mysql"), Config: driver.Config{"address": w.address, "prefix": w.prefix},
	})
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	leases := make([]*core.Lease, others)
	for i := range leases {
		l, err := c.Lock(fmt.Sprint("apart/", i), &core.LockOptions{TTL: time.Duration(1+i%2) * ttl})
		must(t, err)
		leases[i], err = l.Acquire(t.Context())
		must(t, err)
	}
	tx, err := w.db.BeginTx(t.Context(), nil)
	must(t, err)
	if _, err := tx.Exec("SELECT COUNT(*) FROM " + table(w.prefix) + " WHERE name LIKE 'locked/%' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range locked {
		l, err := c.Lock(fmt.Sprint("locked/", i), &core.LockOptions{TTL: ttl})
		must(t, err)
		all.Go(func() {
			if lease, err := l.Acquire(ctx); err == nil {
				t.Errorf("granted %q while its row is locked", lease.Name())
			}
		})
	}
	pause(t, 3*ttl)
	for i, lease := range leases {
		if !lease.Valid() {
			t.Errorf("lease %d of %d, on a row that nobody has locked: %v", i, others, lease.Err())
		}
	}
	cancel()
	must(t, tx.Rollback())
	all.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestValuesAboveAPacket lets 64 callers publish values of 60 KiB each. All values together exceed
// the server's limit of 1 MiB for one statement.
func TestValuesAboveAPacket(t *testing.T) {
	s := own(t, &mysqlserver.Options{Args: []string{"--max-allowed-packet=1M"}})
	b := open(t, mysql.Options{Address: mysqlserver.Address(s)})
	must(t, b.Check(t.Context()))
	var all sync.WaitGroup
	for i := range 128 {
		all.Go(func() {
			for range 5 {
				r := want(fmt.Sprint("job/", i), 10*time.Second)
				if i%2 == 0 {
					r.Value = bytes.Repeat([]byte("v"), 60<<10)
				}
				var err error
				if r.Token, err = b.TryAcquire(t.Context(), r); err == nil {
					err = b.Release(t.Context(), r)
				}
				if err != nil {
					t.Errorf("job %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	// A value above the limit must be refused, without harm to later requests.
	r := want("big", time.Second)
	r.Value = make([]byte, 600<<10)
	if _, err := b.TryAcquire(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a value above the server's packet: %v", err)
	}
	// The backend must split a batch whose statement would exceed the server's limit.
	ops := make([]driver.Op, 200)
	for i := range ops {
		ops[i] = driver.Op{Kind: driver.OpAcquire, Request: want(fmt.Sprint("job/", i), time.Minute)}
		ops[i].Value = bytes.Repeat([]byte("v"), 9000)
	}
	for _, r := range b.Batch(t.Context(), ops) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}

// TestPurgeGoesThroughOnce checks that a purge needs at most three reads for each row.
func TestPurgeGoesThroughOnce(t *testing.T) {
	w := newFixture(t)
	const rows = 20000
	var insert strings.Builder
	insert.WriteString("INSERT INTO " + table(w.prefix) + "(name,expires_at)VALUES")
	for i := range rows {
		if i > 0 {
			insert.WriteByte(',')
		}
		days := 0
		if i%4 == 0 {
			days = 2
		}
		fmt.Fprintf(&insert, "('n%07d',UTC_TIMESTAMP(6)-INTERVAL %d DAY)", i, days)
	}
	if _, err := w.db.Exec(insert.String()); err != nil {
		t.Fatal(err)
	}
	read := func() int { return status(t, w.db, "Handler_read_next") + status(t, w.db, "Handler_read_rnd_next") }
	before := read()
	n, err := w.b.Purge(t.Context())
	if err != nil || n != rows/4 {
		t.Errorf("purged %d rows of %d: %v", n, rows/4, err)
	}
	if reads := read() - before; reads > 3*rows {
		t.Errorf("%d reads for %d rows", reads, rows)
	}
}
