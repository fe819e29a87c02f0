package postgres_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/postgres"
)

// many is the number of requests that a test sends at once, so that it needs several connections.
const many = 40

// TestOneOfTwoServers uses an address that leads to two servers in turn. All locks must be on one
// server, and Check must report both. If that server stops, the backend must use the other one.
func TestOneOfTwoServers(t *testing.T) {
	one, two := own(t, nil), own(t, nil)
	to := backendtest.NewProxy(t, one.Addr(), two.Addr())
	o := postgres.Options{Address: postgresserver.At(to.Addr()), Prefix: fresh()}
	o.DialTimeout, o.RequestTimeout = backendtest.Timeout, backendtest.Timeout // half of all dials are refused
	b := open(t, o)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			if _, err := b.TryAcquire(t.Context(), backendtest.Request(fmt.Sprint("job/", i), rand.Text())); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := b.Inspect(t.Context(), "job"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	rows := func(s *servers.Server) (n int) {
		err := connect(t, s).QueryRow(t.Context(), "SELECT count(*) FROM lockbench.locks WHERE owner <> ''").Scan(&n)
		if err != nil && !strings.Contains(err.Error(), "does not exist") {
			t.Fatal(err)
		}
		return n
	}
	in, other := one, two
	if rows(two) > 0 {
		in, other = two, one
	}
	if a, b := rows(in), rows(other); a != many || b != 0 {
		t.Errorf("%d locks are in one server and %d in the other", a, b)
	}
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "two servers") {
		t.Errorf("Check says %v", err)
	}
	must(t, in.Stop())
	eventually(t, "the other server takes its place", func() bool { return b.Check(t.Context()) == nil })
	acquire(t, b, backendtest.Request("job/0", rand.Text()))
}

// TestDemotedWithoutACut makes a server read-only while its connections stay open and its
// address already leads to another server. The other server must answer each request.
func TestDemotedWithoutACut(t *testing.T) {
	one, two := own(t, nil), own(t, nil)
	to := backendtest.NewProxy(t, one.Addr())
	b := open(t, postgres.Options{Address: postgresserver.At(to.Addr()), Prefix: fresh()})
	var ops []driver.Op
	for i := range many {
		ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: backendtest.Request(fmt.Sprint("job/", i), rand.Text())})
	}
	b.Batch(t.Context(), ops)
	c := connect(t, one)
	for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"} {
		_, err := c.Exec(t.Context(), statement)
		must(t, err)
	}
	eventually(t, "it is read-only", func() bool {
		var is string
		must(t, c.QueryRow(t.Context(), "SHOW transaction_read_only").Scan(&is))
		return is == "on"
	})
	must(t, to.Lead(two.Addr()))
	eventually(t, "the other server takes its place", func() bool {
		return backendtest.Err(b.TryAcquire(t.Context(), backendtest.Request("jobs", rand.Text()))) == nil
	})
	for i := range many {
		acquire(t, b, backendtest.Request(fmt.Sprint("new/", i), rand.Text()))
	}
	eventually(t, "Check passes", func() bool { return b.Check(t.Context()) == nil })
}

// TestRestartBehindPooler restarts the server behind a pooler, which keeps our connections open.
// Check must not report two servers, because old and new connections lead to the same server.
func TestRestartBehindPooler(t *testing.T) {
	s := own(t, nil)
	b := open(t, postgres.Options{Address: pooler(t, s), ListenAddress: "none", Prefix: fresh()})
	must(t, b.Check(t.Context()))
	must(t, s.Stop())
	must(t, s.Start(t.Context(), true))
	var all sync.WaitGroup
	for range many {
		all.Go(func() { _, _ = b.Inspect(t.Context(), "one") }) // on old and new connections
	}
	all.Wait()
	eventually(t, "Check passes", func() bool { return b.Check(t.Context()) == nil })
}
