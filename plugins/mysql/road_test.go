package mysql_test

import (
	"bytes"
	"context"
	"crypto/fips140"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// application runs statements, on the given number of sessions of the server at
// address, until the test ends. It returns a counter of statements that were killed.
func application(t *testing.T, address string, sessions int) (killed *atomic.Int64) {
	t.Helper()
	killed = &atomic.Int64{}
	db := connect(t, address)
	db.SetMaxIdleConns(sessions)
	ctx, cancel := context.WithCancel(context.Background())
	var all, ready sync.WaitGroup
	for range sessions {
		ready.Add(1)
		all.Go(func() {
			c, err := db.Conn(ctx)
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for ctx.Err() == nil {
				var interrupted int
				err := c.QueryRowContext(ctx, "SELECT SLEEP(0.5)").Scan(&interrupted)
				if ctx.Err() == nil && (err != nil || interrupted != 0) {
					killed.Add(1)
				}
			}
		})
	}
	ready.Wait()
	t.Cleanup(func() {
		cancel()
		all.Wait()
		must(t, db.Close())
	})
	return killed
}

const rounds = 20

// TestApplicationIsNotKilled uses an address that leads to two servers in turn. On one server,
// sessions of an application have the same ids as the backend's sessions on the other. When waiters
// give up, the backend kills their statements, but must not kill statements of the application.
func TestApplicationIsNotKilled(t *testing.T) {
	one, two := own(t, nil), own(t, nil)
	killed := application(t, mysqlserver.Address(two), 150)
	for _, s := range []*servers.Server{one, two} {
		acquire(t, open(t, mysql.Options{Address: mysqlserver.Address(s)}), want("jobs", time.Hour))
	}
	to := backendtest.NewProxy(t, one.Addr(), two.Addr())
	for range rounds {
		b := open(t, mysql.Options{Address: mysqlserver.At(to.Addr()), Connections: 8, WaitConnections: 8})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				_, _ = b.Wait(ctx, want("jobs", time.Second), 10*time.Second)
			})
			all.Go(func() { _, _ = b.TryAcquire(t.Context(), want(fmt.Sprint("job/", i), 10*time.Millisecond)) })
		}
		all.Wait()
		must(t, b.Close(t.Context()))
	}
	if n := killed.Load(); n > 0 {
		t.Errorf("%d statements of the application were killed", n)
	}
}

// TestOneOfTwoServers uses an address that leads to two servers in turn. All locks must be on one
// server, and Check must report two servers. When the server with the locks stops, the backend must
// use the other server.
func TestOneOfTwoServers(t *testing.T) {
	one, two := own(t, nil), own(t, nil)
	to := backendtest.NewProxy(t, one.Addr(), two.Addr())
	b := open(t, mysql.Options{Address: mysqlserver.At(to.Addr())})
	var all sync.WaitGroup
	for i := range rounds {
		all.Go(func() {
			_, err := b.TryAcquire(t.Context(), want(fmt.Sprint("job/", i), time.Minute))
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	rows := func(s *servers.Server) (n int) {
		db := connect(t, mysqlserver.Address(s))
		defer db.Close()
		if err := db.QueryRow("SELECT COUNT(*) FROM lockbench_locks").Scan(&n); err != nil && !strings.Contains(err.Error(), "doesn't exist") {
			t.Fatal(err)
		}
		return n
	}
	in, other := one, two
	if rows(two) > 0 {
		in, other = two, one
	}
	if a, b := rows(in), rows(other); a != rounds || b != 0 {
		t.Errorf("%d locks are in one server and %d in the other", a, b)
	}
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "two servers") {
		t.Errorf("Check says %v", err)
	}
	must(t, in.Stop())
	eventually(t, "the other server takes its place", func() bool { return b.Check(t.Context()) == nil })
	acquire(t, b, want("job/0", time.Second))
}

// demotedBy returns server options, keyed by the statement that makes the server refuse requests.
func demotedBy(t *testing.T) map[string]*mysqlserver.Options {
	ways := map[string]*mysqlserver.Options{"SET GLOBAL read_only=1": {}}
	library := "/usr/lib/galera/libgalera_smm.so"
	if _, err := os.Stat(library); err != nil {
		t.Log("without Galera: ", err)
		return ways
	}
	ways["SET GLOBAL wsrep_reject_queries=ALL"] = galera(t, library)
	return ways
}

func galera(t *testing.T, library string) *mysqlserver.Options {
	t.Helper()
	port, err := ports.Take(2)
	must(t, err)
	t.Cleanup(func() { _ = port.Close() })
	return &mysqlserver.Options{Args: []string{
		"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-address=gcomm://", "--wsrep-sst-method=skip",
		"--wsrep-node-address=" + port.Addr(0), "--wsrep-provider-options=gmcast.listen_addr=tcp://" + port.Addr(0) + ";ist.recv_addr=" + port.Addr(1),
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
	}}
}

// TestDemotedWithoutACut lets a server refuse statements while its connections stay open and
// its address already leads to another server. The other server must answer each request.
func TestDemotedWithoutACut(t *testing.T) {
	const user = "lockbench_plain" // an account with every right could still write
	account := []string{"CREATE USER " + user + " IDENTIFIED BY '" + secret + "'", "GRANT ALL ON lockbench.* TO " + user}
	for by, o := range demotedBy(t) {
		t.Run(by, func(t *testing.T) {
			o.SQL = account
			one, two := own(t, o), own(t, &mysqlserver.Options{SQL: account})
			to := backendtest.NewProxy(t, one.Addr())
			b := open(t, mysql.Options{Address: changed(t, mysqlserver.At(to.Addr()), func(c *mysqldriver.Config) { c.User, c.Passwd = user, secret })})
			var ops []driver.Op
			for i := range 100 {
				ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: want(fmt.Sprint("job/", i), time.Minute)})
			}
			b.Batch(t.Context(), ops) // on several connections
			db := connect(t, mysqlserver.Address(one))
			defer db.Close()
			_, err := db.Exec(by)
			must(t, err)
			must(t, to.Lead(two.Addr()))
			acquire(t, b, want("jobs", time.Second))
			must(t, b.Check(t.Context()))
			for i := range rounds {
				acquire(t, b, want(fmt.Sprint("new/", i), time.Second))
			}
		})
	}
}

// TestDeadIdleConnections drops all data on all connections but the newest, as if a firewall had
// forgotten them. No lease with a short TTL may be lost, because new connections work.
func TestDeadIdleConnections(t *testing.T) {
	s := own(t, nil)
	for _, ttl := range []time.Duration{2 * time.Second, 4 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			to := backendtest.NewProxy(t, s.Addr())
			b := open(t, mysql.Options{Address: mysqlserver.At(to.Addr()), Connections: 40})
			db := connect(t, mysqlserver.Address(s))
			defer db.Close()
			must(t, b.Check(t.Context()))
			fill(t, b, 20)
			c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			var leases []*core.Lease
			for i := range 20 {
				l, err := c.Lock(fmt.Sprint("held/", ttl, i), &core.LockOptions{TTL: ttl})
				must(t, err)
				lease, err := l.Acquire(t.Context())
				must(t, err)
				leases = append(leases, lease)
			}
			must(t, to.Silence())
			throughout(t, 3*ttl, "no lease is lost", func() bool {
				for _, l := range leases {
					if l.Err() != nil {
						t.Fatalf("%v", l.Err())
					}
				}
				return true
			})
		})
	}
}

// TestRestedConnections holds back all requests on idle connections, as if a load
// balancer had forgotten them. A single TryAcquire must then get a free lock.
func TestRestedConnections(t *testing.T) {
	s := own(t, nil)
	to := backendtest.NewProxy(t, s.Addr())
	b := open(t, mysql.Options{Address: mysqlserver.At(to.Addr()), Connections: 40})
	must(t, b.Check(t.Context()))
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	l, err := c.Lock("tick", &core.LockOptions{TTL: 10 * time.Second})
	must(t, err)
	for _, connections := range []int{1, 1, 20} {
		fill(t, b, connections)
		pause(t, 1200*time.Millisecond)
		must(t, to.HoldConnections())
		lease, err := l.TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("of %d connections that rested none answers: %v", connections, err)
		}
		must(t, lease.Release(t.Context()))
	}
}

// fill makes n idle connections, by calling Check n times at once.
func fill(t *testing.T, b *mysql.Backend, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() { must(t, b.Check(t.Context())) })
	}
	all.Wait()
}

// TestOldServer checks that the error for a server without SKIP LOCKED names the server's version.
func TestOldServer(t *testing.T) {
	s := own(t, &mysqlserver.Options{Args: []string{"--version=10.5.29-MariaDB"}})
	refused(t, checking(t, mysql.Options{Address: mysqlserver.Address(s)}), driver.ErrDenied, "MariaDB 10.5.29", "MariaDB 10.6")
}

// TestMaxAllowedPacket checks that large batches keep to the maxAllowedPacket in the address.
func TestMaxAllowedPacket(t *testing.T) {
	w := newFixture(t)
	for _, most := range []int{0, 1 << 14, 1 << 18} {
		b := open(t, mysql.Options{Address: changed(t, w.address, func(c *mysqldriver.Config) { c.MaxAllowedPacket = most }), Prefix: w.prefix})
		var ops []driver.Op
		for i := range 300 {
			r := want(fmt.Sprintf("packet/%d/%d", most, i), time.Minute)
			r.Value = make([]byte, 4000)
			ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: r})
		}
		for _, r := range b.Batch(t.Context(), ops) {
			if r.Err != nil {
				t.Fatalf("maxAllowedPacket=%d: %v", most, r.Err)
			}
		}
	}
	tiny := changed(t, w.address, func(c *mysqldriver.Config) { c.MaxAllowedPacket = 100 })
	refused(t, opening(driver.Config{"address": tiny}), driver.ErrConfig, "maxAllowedPacket", "16384")
}

// TestRolledBackAtCommit checks that the backend repeats a statement that
// MySQL's group replication has rolled back.
func TestRolledBackAtCommit(t *testing.T) {
	w := newFixture(t)
	var left atomic.Int64
	b, err := mysql.OpenRefusing(mysql.Options{Address: w.address, Prefix: w.prefix, Logger: slog.New(slog.DiscardHandler)}, func(text string) error {
		if strings.HasPrefix(text, "INSERT") && left.Add(-1) >= 0 {
			return &mysqldriver.MySQLError{Number: 3101, Message: "Plugin instructed the server to rollback the current transaction."}
		}
		return nil
	})
	must(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	must(t, b.Check(t.Context()))
	left.Store(3)
	release(t, b, acquire(t, b, want("jobs", time.Second)))
}

// TestKilledAfterCommit interrupts a release after its commit. The backend repeats the release, and
// the repetition finds no lease. The caller must not be told that the lease was lost before.
func TestKilledAfterCommit(t *testing.T) {
	w := newFixture(t)
	var left atomic.Int64
	b, err := mysql.OpenRefusing(mysql.Options{Address: w.address, Prefix: w.prefix, Logger: slog.New(slog.DiscardHandler)}, func(text string) error {
		if !strings.Contains(text, "freed_by=") || left.Add(-1) < 0 {
			return nil
		}
		if _, err := w.db.Exec(text); err != nil {
			return err
		}
		return &mysqldriver.MySQLError{Number: 1317, Message: "Query execution was interrupted"}
	})
	must(t, err)
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	l, err := c.Lock("jobs", nil)
	must(t, err)
	lease, err := l.TryAcquire(t.Context())
	must(t, err)
	left.Store(1)
	if err := lease.Release(t.Context()); err != nil || left.Load() >= 0 {
		t.Errorf("release, interrupted after its commit: %v", err)
	}
}

// TestNoGetLock uses a server that refuses GET_LOCK. Waiters must poll, but not too often, and
// Check must return an error that names wait_connections=0.
func TestNoGetLock(t *testing.T) {
	w := newFixture(t)
	var logs lines
	var asked, dialed atomic.Int64
	b, err := mysql.OpenRefusing(mysql.Options{Address: w.address, Prefix: w.prefix, Logger: slog.New(slog.NewTextHandler(&logs, nil))}, func(text string) error {
		asked.Add(1)
		if strings.HasPrefix(text, "SET NAMES") {
			dialed.Add(1)
		}
		if strings.Contains(text, "GET_LOCK('") {
			return &mysqldriver.MySQLError{Number: 1105, Message: "Percona-XtraDB-Cluster prohibits use of GET_LOCK with pxc_strict_mode = ENFORCING"}
		}
		return nil
	})
	must(t, err)
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "wait_connections=0") {
		t.Errorf("Check says %v", err)
	}
	r := acquire(t, w.b, want("jobs", time.Minute))
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	l, err := c.Lock("jobs", nil)
	must(t, err)
	asked.Store(0)
	dialed.Store(0)
	const seconds = 4
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited: %v", err)
	}
	if n, d := asked.Load(), dialed.Load(); n > 20*seconds || d > 8 {
		t.Errorf("one waiter asked %d times in %d s, and connected %d times", n, seconds, d)
	}
	if n := logs.count("GET_LOCK"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context())
		got <- err
	}()
	eventually(t, "it waits", func() bool {
		h, err := w.b.Inspect(t.Context(), "jobs")
		return err == nil && h.Waiters == 1
	})
	release(t, w.b, r)
	must(t, <-got)
}

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "level=WARN msg=\"mysql: the server refuses "+what)
}

// TestFIPS runs a child process in which Go refuses SHA-1. A login that
// needs SHA-1 must fail there, with an error that says what to set.
func TestFIPS(t *testing.T) {
	if fips140.Enforced() && flag.NArg() == 1 {
		b := open(t, mysql.Options{Address: flag.Arg(0)})
		refused(t, func() error { return b.Check(t.Context()) }, driver.ErrDenied, "GODEBUG=fips140=only", "caching_sha2_password")
		return
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFIPS$", "-test.v", address(t))
	c.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}
