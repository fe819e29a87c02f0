package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	postgres "github.com/lockbench/lockbench/examples/backend-postgres"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// TestConformance holds the plugin to every rule of the contract.
func TestConformance(t *testing.T) {
	server := start(t)
	binary := plugintest.Build(t, "./lockplugin-postgres")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		here, there := rand.Text(), rand.Text()
		h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return server.config(here) })(t)
		h.Other = plugintest.Binary(binary, func(drivertest.T) driver.Config { return server.config(there) })(t).Open
		h.Store = &server.Server
		h.Leftovers = func(t drivertest.T) []string { return server.leftovers(t, here) }
		return h
	})
}

// open opens the backend in this process.
func open(t *testing.T, cfg driver.Config) driver.Backend {
	t.Helper()
	b, err := driver.Open(t.Context(), postgres.Spec, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// TestHostsMakeTheSchemaAtOnce: of many hosts that begin on an empty database
// one makes the schema, and none fails.
func TestHostsMakeTheSchemaAtOnce(t *testing.T) {
	server := start(t)
	var hosts sync.WaitGroup
	for range 20 {
		b := open(t, server.config("at-once"))
		hosts.Go(func() {
			if err := b.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	hosts.Wait()
}

// TestTokensRiseUnderContention has many hosts take one lock over and over. A
// number that is drawn before the row is locked comes out of order here.
func TestTokensRiseUnderContention(t *testing.T) {
	server := start(t)
	var hosts sync.WaitGroup
	var mu sync.Mutex
	var last uint64
	for range 8 {
		b := open(t, server.config("rise"))
		hosts.Go(func() {
			for range 100 {
				r := driver.Request{Name: "one", Owner: rand.Text(), TTL: time.Minute}
				token, err := b.TryAcquire(t.Context(), r)
				if errors.Is(err, driver.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if token <= last {
					t.Errorf("token %d after %d", token, last)
				}
				last = token
				mu.Unlock()
				r.Token = token
				if err := b.Release(t.Context(), r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	hosts.Wait()
	if last == 0 {
		t.Error("nothing was granted")
	}
}

// grants takes and releases a lock that often, and returns the last token. Each is
// above the one before it, and the first above last.
func grants(t *testing.T, b driver.Backend, name string, times int, last uint64) uint64 {
	t.Helper()
	for range times {
		r := driver.Request{Name: name, Owner: rand.Text(), TTL: time.Minute}
		var err error
		if r.Token, err = b.TryAcquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if r.Token <= last {
			t.Fatalf("token %d after %d", r.Token, last)
		}
		last = r.Token
		if err := b.Release(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// TestTokensRiseOverLostGrants: what the server is restored to knows nothing of the
// last grants, like a standby that is promoted before it has them.
func TestTokensRiseOverLostGrants(t *testing.T) {
	server := start(t)
	before := grants(t, open(t, server.config("restored")), "one", 1, 0)
	server.Stop(t)
	backup := server.copyData(t)
	server.Start(t, true)
	last := grants(t, open(t, server.config("restored")), "one", 200, before)
	server.Stop(t)
	server.restore(t, backup)
	server.Start(t, true)
	grants(t, open(t, server.config("restored")), "one", 2, last)
}

// TestTokensRiseBehindTheClock: what was granted is not granted again when the
// server's clock is turned back, although no row of the lock is left.
func TestTokensRiseBehindTheClock(t *testing.T) {
	server := start(t)
	b := open(t, server.config("back"))
	last := grants(t, b, "one", 1, 0)
	conn, err := server.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const hour = 3600 * 1e6 // as if the grant had been made in an hour
	if tag, err := conn.Exec(t.Context(), "UPDATE lockbench.counters SET last = last + $1", int64(hour)); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
	grants(t, b, "one", 3, last+hour)
	var left int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM lockbench.counters").Scan(&left); err != nil || left != 1 {
		t.Errorf("one name has %d counters: %v", left, err)
	}
}

// TestSchemaWithSequence: what was made when tokens came from a sequence serves on
// with higher ones, and without the sequence.
func TestSchemaWithSequence(t *testing.T) {
	server := start(t)
	grants(t, open(t, server.config("old")), "one", 1, 0)
	conn, err := server.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var old uint64
	if _, err := conn.Exec(t.Context(), "DROP TABLE lockbench.counters; CREATE SEQUENCE lockbench.tokens"); err != nil {
		t.Fatal(err)
	}
	err = conn.QueryRow(t.Context(), "SELECT setval('lockbench.tokens', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)").Scan(&old)
	if err != nil {
		t.Fatal(err)
	}
	var hosts sync.WaitGroup
	for range 8 {
		b := open(t, server.config("old"))
		hosts.Go(func() {
			if err := b.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	hosts.Wait()
	grants(t, open(t, server.config("old")), "one", 1, old)
	var gone bool
	if err := conn.QueryRow(t.Context(), "SELECT to_regclass('lockbench.tokens') IS NULL").Scan(&gone); err != nil || !gone {
		t.Errorf("the sequence is still there: %v", err)
	}
}

// TestAnotherIsolationLevel: a database whose transactions see the past by
// default changes nothing.
func TestAnotherIsolationLevel(t *testing.T) {
	server := start(t)
	conn, err := server.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'"); err != nil {
		t.Fatal(err)
	}
	b := open(t, server.config("isolated"))
	for range 50 {
		owner := rand.Text()
		granted := make(chan error, 1)
		go func() {
			_, err := b.TryAcquire(t.Context(), driver.Request{Name: "one", Owner: owner, TTL: time.Minute})
			granted <- err
		}()
		if err := b.Withdraw(t.Context(), "one", owner); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil && !errors.Is(err, driver.ErrWithdrawn) {
			t.Fatal(err)
		}
		if h, err := b.Inspect(t.Context(), "one"); err != nil || h.Held() {
			t.Fatalf("after its withdrawal: %+v, %v", h, err)
		}
	}
}

// TestPasswordIsNotShown: neither a password that is refused nor one that
// stands in the wrong key is in an error.
func TestPasswordIsNotShown(t *testing.T) {
	server := start(t)
	const secret = "needle-in-no-message"
	wrong := server.config("")
	wrong["password"] = secret
	err := open(t, wrong).Check(t.Context())
	if !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), secret) {
		t.Errorf("a wrong password: %v", err)
	}
	for _, key := range []string{"address", "tls_ca_file"} {
		wrong := server.config("")
		wrong[key] = "postgres://me:" + secret + "@localhost/x"
		_, err := driver.Open(t.Context(), postgres.Spec, wrong, nil)
		if !errors.Is(err, driver.ErrConfig) || strings.Contains(err.Error(), secret) {
			t.Errorf("a password in %s: %v", key, err)
		}
	}
}

// TestPasswordFileIsReadAgain: a password that was changed is used by the next
// connection.
func TestPasswordFileIsReadAgain(t *testing.T) {
	server := start(t)
	file := t.TempDir() + "/password"
	cfg := server.config("")
	delete(cfg, "password")
	cfg["password_file"] = file
	b := open(t, cfg)
	if err := os.WriteFile(file, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDeadListenerIsReplaced: whoever waits is woken when the connection that
// listens is ended, and by a release over the next one.
func TestDeadListenerIsReplaced(t *testing.T) {
	server := start(t)
	b := open(t, server.config("listen"))
	conn, err := server.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	kill := func() (ended int) {
		err := conn.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	r := driver.Request{Name: "one", Owner: "holder", TTL: time.Minute}
	if r.Token, err = b.TryAcquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); kill() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody listens")
		}
	}
	waiter := driver.WaiterOf(b)
	woken := make(chan error, 1)
	go func() {
		w := driver.Request{Name: "one", Owner: "waiter"}
		var err error
		for err == nil {
			if _, err = waiter.Wait(t.Context(), w, 30*time.Second); err == nil {
				var h driver.Holder
				if h, err = b.Inspect(t.Context(), "one"); !h.Held() {
					break
				}
			}
		}
		woken <- err
	}()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		h, err := b.Inspect(t.Context(), "one")
		if err != nil || time.Now().After(end) {
			t.Fatalf("nobody waits: %+v, %v", h, err)
		}
		if h.Waiters == 1 {
			break
		}
	}
	if err := b.Release(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-woken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody was woken")
	}
}
