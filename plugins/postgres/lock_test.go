package postgres_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/postgres"
)

func host(t *testing.T, prefix string) *postgres.Backend {
	t.Helper()
	return open(t, postgres.Options{Address: postgresserver.Address(server(t)), Prefix: prefix})
}

// If 20 hosts start at the same time, one must create the schema, and no Check may fail.
func TestHostsMakeTheSchemaAtOnce(t *testing.T) {
	s := own(t, nil)
	var hosts sync.WaitGroup
	for range 20 {
		b := open(t, postgres.Options{Address: postgresserver.Address(s), Connections: 2})
		hosts.Go(func() {
			if err := b.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	hosts.Wait()
}

// TestTokensRise lets many hosts take one lock again and again. Each grant must have a higher token
// than the grant before it, even if the server has lost grants, as a promoted standby may, or if
// its clock was turned back.
func TestTokensRise(t *testing.T) {
	prefix := fresh()
	var hosts sync.WaitGroup
	var mu sync.Mutex
	var last uint64
	for range 8 {
		b := host(t, prefix)
		hosts.Go(func() {
			for range 100 {
				r := backendtest.Request("one", rand.Text())
				var err error
				if r.Token, err = b.TryAcquire(t.Context(), r); errors.Is(err, driver.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if r.Token <= last {
					t.Errorf("token %d after %d", r.Token, last)
				}
				last = r.Token
				mu.Unlock()
				if err := b.Release(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	hosts.Wait()
	c, b := connect(t, server(t)), host(t, prefix)
	for _, statement := range []string{
		"DELETE FROM lockbench.locks WHERE name = $1",                           // the clock sets the token
		"UPDATE lockbench.locks SET token = token + 3600000000 WHERE name = $1", // the row sets the token
	} {
		var before uint64
		must(t, c.QueryRow(t.Context(), "SELECT token FROM lockbench.locks WHERE name = $1", []byte(prefix+"/one")).Scan(&before))
		_, err := c.Exec(t.Context(), statement, []byte(prefix+"/one"))
		must(t, err)
		if strings.HasPrefix(statement, "UPDATE") {
			before += 3600000000
		}
		r := acquire(t, b, backendtest.Request("one", rand.Text()))
		if r.Token <= before {
			t.Errorf("after %s: token %d, and %d before", statement, r.Token, before)
		}
		must(t, b.Release(t.Context(), r))
	}
}

// others are database settings that might change what the backend's statements do.
var others = []string{
	"default_transaction_isolation = 'serializable'", "search_path = ''", "bytea_output = 'escape'", "timezone = 'Asia/Tokyo'",
	"datestyle = 'German'", "intervalstyle = 'sql_standard'", "standard_conforming_strings = off", "lock_timeout = '1ms'",
	"idle_session_timeout = '500ms'", "enable_indexscan = off", "plan_cache_mode = 'force_custom_plan'",
}

// TestSettingsOfOthers checks that locks work under unusual database settings. One host connects
// before the settings change, one after that, and one through a pooler that refuses our settings.
func TestSettingsOfOthers(t *testing.T) {
	s := own(t, nil)
	c, before := connect(t, s), open(t, postgres.Options{Address: postgresserver.Address(s), Prefix: fresh()})
	must(t, before.Check(t.Context()))
	for _, setting := range others {
		_, err := c.Exec(t.Context(), "ALTER DATABASE postgres SET "+setting)
		must(t, err)
	}
	_, err := c.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = 'lockbench'")
	must(t, err)
	for name, b := range map[string]*postgres.Backend{
		"before": before,
		"direct": open(t, postgres.Options{Address: postgresserver.Address(s), Prefix: fresh()}),
		"pooler": open(t, postgres.Options{Address: pooler(t, s), ListenAddress: "none", Prefix: fresh()}),
	} {
		t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			for range 14 { // so that new connections are made
				all.Go(func() {
					if _, err := b.Inspect(t.Context(), "one"); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			must(t, b.Check(t.Context()))
			serves(t, b)
		})
	}
}

// serves checks that acquire, refusal, list, wait and withdrawal of a lock work on the backend b.
func serves(t *testing.T, b *postgres.Backend) {
	for range 20 {
		owner := rand.Text()
		granted := make(chan error, 1)
		go func() { granted <- backendtest.Err(b.TryAcquire(t.Context(), backendtest.Request("one", owner))) }()
		must(t, b.Withdraw(t.Context(), "one", owner))
		if err := <-granted; err != nil && !errors.Is(err, driver.ErrWithdrawn) {
			t.Fatal(err)
		}
		if h, err := b.Inspect(t.Context(), "one"); err != nil || h.Held() {
			t.Fatalf("after its withdrawal: %+v, %v", h, err)
		}
	}
	r := backendtest.Request("two\x00\\", rand.Text())
	r.Label, r.Value = "label'\\", []byte{0, 1, '\\', 255}
	r = acquire(t, b, r)
	w := backendtest.Request(r.Name, rand.Text())
	if _, err := b.TryAcquire(t.Context(), w); held(t, err).Label != r.Label {
		t.Errorf("a refusal: %v", err)
	}
	must(t, b.List(t.Context(), "", func(h driver.Holder) bool {
		if h.Name != r.Name || h.Label != r.Label || string(h.Value) != string(r.Value) {
			t.Errorf("listed: %+v", h)
		}
		return true
	}))
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), r) }()
	g, err := b.Wait(t.Context(), w, 5*time.Second)
	if err == nil && g.Token == 0 {
		g.Token, err = b.TryAcquire(t.Context(), w)
	}
	must(t, errors.Join(err, <-released))
	if g.Token <= r.Token {
		t.Errorf("token %d after %d", g.Token, r.Token)
	}
}

// TestTextsDoNotMove checks that no index of the schema depends on a collation of the
// operating system, because an update of the system may change the order of texts.
func TestTextsDoNotMove(t *testing.T) {
	must(t, host(t, fresh()).Check(t.Context()))
	var n int
	must(t, connect(t, server(t)).QueryRow(t.Context(), `SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'lockbench'::regnamespace AND c.relkind = 'i' AND a.attcollation NOT IN (0, 'pg_catalog."C"'::regcollation)`).Scan(&n))
	if n != 0 {
		t.Errorf("%d columns of indexes have another collation than C", n)
	}
}

// TestLockedRow lets another client's transaction keep a row locked. In a batch, the operation on
// this row must fail, and all others must succeed.
func TestLockedRow(t *testing.T) {
	prefix := fresh()
	b := host(t, prefix)
	stuck := acquire(t, b, backendtest.Request("stuck", rand.Text()))
	must(t, b.Release(t.Context(), stuck))
	tx, err := connect(t, server(t)).Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM lockbench.locks WHERE name = $1 FOR UPDATE", []byte(prefix+"/stuck"))
	must(t, err)
	ops := make([]driver.Op, 20)
	for i := range ops {
		ops[i] = driver.Op{Kind: driver.OpAcquire, Request: backendtest.Request(fmt.Sprint("free", i), rand.Text())}
	}
	ops[7].Name = "stuck"
	for i, r := range b.Batch(t.Context(), ops) {
		if (i == 7) != (r.Err != nil) || i == 7 && !errors.Is(r.Err, driver.ErrUnavailable) {
			t.Errorf("%s: %v", ops[i].Name, r.Err)
		}
	}
	must(t, tx.Rollback(t.Context()))
	acquire(t, b, backendtest.Request("stuck", rand.Text()))
}

// TestDDL uses a role that may not create the schema. The rights that the ddl command prints must
// be enough for this role, and Check must return an error if a right is missing.
func TestDDL(t *testing.T) {
	s := own(t, nil)
	c := connect(t, s)
	_, err := c.Exec(t.Context(), "CREATE ROLE plain LOGIN PASSWORD 'plain-password'")
	must(t, err)
	address := servers.LoginTo(postgresserver.Address(s), "postgres://plain")
	o := postgres.Options{Address: address, Connect: postgres.Connect{Password: "plain-password"}}
	b := open(t, o)
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "ddl") {
		t.Errorf("without the schema: %v", err)
	}
	var ddl strings.Builder
	full, err := postgres.Spec.CheckConfig(driver.Config{"address": address})
	must(t, err)
	must(t, postgres.Spec.Commands[0].Run(t.Context(), full, &ddl))
	if err := c.PgConn().Exec(t.Context(), ddl.String()).Close(); err != nil {
		t.Fatal(err)
	}
	must(t, b.Check(t.Context()))
	r := acquire(t, b, backendtest.Request("one", rand.Text()))
	must(t, b.Renew(t.Context(), r))
	must(t, b.Release(t.Context(), r))
	must(t, b.Withdraw(t.Context(), "one", r.Owner))
	_, err = c.Exec(t.Context(), "REVOKE DELETE ON lockbench.waiters FROM plain")
	must(t, err)
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("without a right: %v", err)
	}
}

// TestPasswordIsNotShown checks that no error contains a password, whether the
// server refused it or the user wrote it into the wrong key.
func TestPasswordIsNotShown(t *testing.T) {
	s := server(t)
	const secret = "needle-in-no-message"
	wrong := postgres.Options{Address: servers.LoginTo(postgresserver.Address(s), "postgres://lockbench:"+secret)}
	err := open(t, wrong).Check(t.Context())
	if !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), secret) {
		t.Errorf("a wrong password: %v", err)
	}
	for _, address := range []string{secret, "postgres://me:" + secret + "@h/", "me:" + secret + "@h:1/db", "postgres://me:" + secret + "@h:x/db"} {
		_, err := driver.Open(t.Context(), postgres.Spec, driver.Config{"address": address}, nil)
		if !errors.Is(err, driver.ErrConfig) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestPasswordFileIsReadAgain(t *testing.T) {
	s := server(t)
	file := t.TempDir() + "/password"
	must(t, os.WriteFile(file, []byte("wrong\n"), 0o600))
	b := open(t, postgres.Options{Address: servers.LoginTo(postgresserver.Address(s), "postgres://lockbench"), Connect: postgres.Connect{PasswordFile: file}})
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("with a wrong password: %v", err)
	}
	_, right, _ := strings.Cut(strings.TrimPrefix(postgresserver.Address(s), "postgres://"), ":")
	right, _, _ = strings.Cut(right, "@")
	must(t, os.WriteFile(file, []byte(right+"\n"), 0o600))
	must(t, b.Check(t.Context()))
}

// TestReadOnlyIsAnOutage checks that a read-only server, such as a standby,
// counts as unavailable until it accepts writes.
func TestReadOnlyIsAnOutage(t *testing.T) {
	s := own(t, nil)
	b, c := open(t, postgres.Options{Address: postgresserver.Address(s)}), connect(t, s)
	must(t, b.Check(t.Context()))
	set := func(value string) {
		for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
			_, err := c.Exec(t.Context(), statement)
			must(t, err)
		}
	}
	set("on")
	eventually(t, "it is read-only", func() bool {
		err := backendtest.Err(b.TryAcquire(t.Context(), backendtest.Request(rand.Text(), rand.Text()))) // granted until the server has reloaded
		if err != nil && (!errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent)) {
			t.Fatalf("of a read-only server: %v", err)
		}
		return err != nil
	})
	set("off")
	eventually(t, "it serves again", func() bool {
		return backendtest.Err(b.TryAcquire(t.Context(), backendtest.Request("two", rand.Text()))) == nil
	})
}

// TestDeadListenerIsReplaced ends all connections, including the connection for notices, while an
// owner waits. The owner must be granted the lock over new connections.
func TestDeadListenerIsReplaced(t *testing.T) {
	prefix := fresh()
	b, c := host(t, prefix), connect(t, server(t))
	r := acquire(t, b, backendtest.Request("one", rand.Text()))
	must(t, b.Check(t.Context())) // now it listens
	granted := make(chan driver.Grant, 1)
	go func() {
		w := backendtest.Request("one", rand.Text())
		for t.Context().Err() == nil {
			g, err := b.Wait(t.Context(), w, time.Second)
			if err == nil && g.Token == 0 {
				g.Token, _ = b.TryAcquire(t.Context(), w)
			}
			if g.Token != 0 {
				granted <- g
				return
			}
		}
	}()
	waits := func() bool {
		h, err := b.Inspect(t.Context(), "one")
		must(t, err)
		return h.Waiters == 1
	}
	eventually(t, "somebody waits", waits)
	// Another session takes over the advisory lock of the dead listener, as if the server did not
	// know that the listener is dead.
	ghost := connect(t, server(t))
	var process string
	must(t, c.QueryRow(t.Context(), "SELECT process FROM lockbench.waiters WHERE name = $1", []byte(prefix+"/one")).Scan(&process))
	taken := make(chan error, 1)
	go func() {
		_, err := ghost.Exec(t.Context(), "SELECT pg_advisory_lock(hashtextextended($1::text, 0))", process)
		taken <- err
	}()
	eventually(t, "the ghost waits for the lock", func() (waits bool) {
		must(t, c.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)").Scan(&waits))
		return waits
	})
	var ended int
	must(t, c.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'lockbench'").Scan(&ended))
	if ended < 2 {
		t.Errorf("%d connections", ended)
	}
	must(t, <-taken)
	eventually(t, "it is released", func() bool { return b.Release(t.Context(), r) == nil })
	select {
	case g := <-granted:
		if g.Token <= r.Token {
			t.Errorf("token %d after %d", g.Token, r.Token)
		}
	case <-time.After(backendtest.Timeout):
		t.Error("nobody was granted the lock")
	}
}

// TestStorm lets many processes compete for one lock and end at random moments.
func TestStorm(t *testing.T) {
	o := postgres.Options{Address: postgresserver.Address(server(t)), Prefix: fresh(), Connections: 2, Logger: slog.New(slog.DiscardHandler)}
	backendtest.Storm(t, func() (driver.Backend, error) { return postgres.Open(&o) }, 15*time.Second,
		func() time.Duration { return 300*time.Millisecond + mrand.N(time.Second).Truncate(time.Millisecond) })
}

func TestHarmToAWaiter(t *testing.T) {
	s, prefix := server(t), fresh()
	binary := plugintest.Build(t, "./lockplugin-postgres")
	h := plugintest.Binary(binary, func(drivertest.T) driver.Config {
		return driver.Config{"address": postgresserver.Address(s), "prefix": prefix}
	})(t)
	h.Store = conform.Store(nil, s)
	backendtest.HarmToAWaiter(t, h, host(t, prefix))
}

// TestFarWaiters uses waiters whose round trip is 400 ms. Each must be granted the lock in its
// turn, when the previous lease ends, and early enough to renew its grant before the grant ends.
func TestFarWaiters(t *testing.T) {
	p, err := inject.NewProxy(server(t).Addr())
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	p.SetDistance(backendtest.Far)
	o := postgres.Options{Address: postgresserver.At(p.Addr()), Prefix: fresh(), Connections: 6}
	o.DialTimeout, o.RequestTimeout = backendtest.Timeout, backendtest.Timeout
	b, near := open(t, o), host(t, o.Prefix)
	must(t, near.Check(t.Context())) // now the schema exists
	must(t, b.Check(t.Context()))    // now it listens
	var all sync.WaitGroup
	for range o.Connections { // each connection takes seconds to make
		all.Go(func() {
			if _, err := b.Inspect(t.Context(), "jobs"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	backendtest.FarWaiters(t, b, "jobs", func(waiters int) {
		eventually(t, "they wait", func() bool {
			h, err := near.Inspect(t.Context(), "jobs")
			must(t, err)
			return h.Waiters == waiters
		})
	})
}

// TestWaiterHearsOfAnothersGrant grants the lock to a waiter that may be dead. The next waiter must
// be told when this grant ends, because it asks for the lock at that time.
func TestWaiterHearsOfAnothersGrant(t *testing.T) {
	prefix := fresh()
	b, next, c := host(t, prefix), host(t, prefix), connect(t, server(t))
	must(t, b.Check(t.Context())) // now they listen
	must(t, next.Check(t.Context()))
	left := func() (ms *int64) {
		must(t, c.QueryRow(t.Context(), `SELECT left_ms FROM lockbench.enter1('1s', 'nobody', ARRAY[$1::bytea], ARRAY['behind'], ARRAY[500000::bigint],
			ARRAY[NULL::bytea], ARRAY[NULL::bytea], ARRAY[9000000::bigint])`, prefix+"/one").Scan(&ms))
		return ms
	}
	holder, gone := acquire(t, b, backendtest.Request("one", rand.Text())), backendtest.Request("one", rand.Text())
	if g, err := next.Wait(t.Context(), gone, time.Millisecond); err != nil || g.Token != 0 {
		t.Fatalf("waiting for a held lock: %v, %v", g, err)
	}
	if ms := left(); ms != nil {
		t.Errorf("behind a holder: %d ms", *ms)
	}
	must(t, b.Release(t.Context(), holder))
	if ms := left(); ms == nil || *ms <= 0 || *ms > 500 {
		t.Errorf("behind a waiter that was granted the lock: %v", ms)
	}
	acquire(t, next, gone)
	if ms := left(); ms != nil {
		t.Errorf("behind a waiter that uses its grant: %d ms", *ms)
	}
}
