package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// preludes are statements that change a session and are not plain assignments to variables.
var preludes = []string{
	"START TRANSACTION",
	"SET autocommit=0;START TRANSACTION",
	"SET TRANSACTION READ ONLY",
	"SET completion_type=CHAIN;START TRANSACTION",
	"USE information_schema",
	"SET NAMES ucs2", // a client cannot send texts in ucs2, so the server refuses it
	"SET NAMES latin1;SET collation_connection=utf32_general_ci",
	"LOCK TABLES %s READ",
}

// TestSessionVariables sets each session variable to several values, before the backend gets the
// connection. It omits the variables in the allowed map. If the server accepts a value, acquiring,
// renewing, waiting and releasing must work as they do without this value.
func TestSessionVariables(t *testing.T) {
	w := newFixture(t)
	todo := append([]string(nil), preludes...)
	for i, p := range todo {
		if strings.Contains(p, "%s") {
			todo[i] = fmt.Sprintf(p, table(w.prefix))
		}
	}
	known := len(todo)
	todo = append(todo, assignments(t, w)...)
	want := decisions(t.Context(), w.b, w.db, w.prefix, "plain")
	if strings.Contains(want, "ERROR") {
		t.Fatal(want)
	}
	if testing.Short() {
		todo = todo[:known+40]
	}
	refused, crashed := 0, -1
	for i := 0; i < len(todo) && !t.Failed(); i++ {
		b, err := mysql.OpenAfter(mysql.Options{Address: w.address, Prefix: w.prefix, Connections: 2, Logger: slog.New(slog.DiscardHandler)}, todo[i])
		must(t, err)
		if err := b.Check(t.Context()); errors.Is(err, mysql.ErrPrelude) {
			refused++
		} else if got := decisions(t.Context(), b, w.db, w.prefix, fmt.Sprintf("n%d-%d", i, crashed)); got == want {
		} else if crash := crash(); crash != nil && crashed != i {
			// MySQL 9.7.4 crashes in about one of sixty runs, while it writes a warning about our
			// SET of sql_mode. So only a second crash at the same assignment fails the test.
			t.Logf("after %s: %v", todo[i], crash)
			must(t, shared.server.Stop())
			must(t, shared.server.Start(t.Context(), true))
			crashed, i = i, i-1
		} else {
			t.Errorf("after %s\n got %s\nwant %s\n%v", todo[i], got, want, crash)
		}
		_ = b.Close(context.Background())
	}
	t.Logf("%d assignments, %d of them refused by the server", len(todo), refused)
	if refused > len(todo)/2 {
		t.Errorf("%d of %d assignments were refused: that is hardly a test", refused, len(todo))
	}
}

// crash returns an error that names the signal if the shared server crashed, and nil if not.
func crash() error {
	if shared.server == nil {
		return nil
	}
	if err := shared.server.Resume(); err != nil && strings.Contains(err.Error(), " got signal ") {
		return err
	}
	return nil
}

// decisions sends a few requests to the backend b. It returns a text with their results and with
// the lock's row, which db reads.
func decisions(ctx context.Context, b *mysql.Backend, db *sql.DB, prefix, name string) string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var log []string
	say := func(what string, err error) {
		var held *driver.HeldError
		switch {
		case errors.As(err, &held):
			what = fmt.Sprintf("%s held by %s with %d waiters", what, held.Holder.Label, held.Holder.Waiters)
		case errors.Is(err, driver.ErrNotHeld):
			what += " not held"
		case err != nil:
			what += " ERROR " + err.Error()
		}
		log = append(log, what)
	}
	row := func() {
		var owned, left int64
		var waiting, value string
		err := db.QueryRowContext(ctx, "SELECT owner<>'',(TIMESTAMPDIFF(SECOND,UTC_TIMESTAMP(6),expires_at)+5) DIV 10,queue<>'',COALESCE(value,'-') FROM "+table(prefix)+" WHERE name=?",
			[]byte(name)).Scan(&owned, &left, &waiting, &value)
		say(fmt.Sprintf("row %d %d0s %s %s", owned, left, waiting, value), err)
	}
	first, next := want(name, 30*time.Second), want(name, 30*time.Second)
	var err error
	first.Token, err = b.TryAcquire(ctx, first)
	say(fmt.Sprint("acquire ", first.Token > 1e15), err)
	row()
	next.Label = "next"
	_, err = b.TryAcquire(ctx, next)
	say("acquire", err)
	first.TTL = 50 * time.Second
	say("renew", b.Renew(ctx, first))
	first.Value = []byte("v")
	say("proclaim", b.Proclaim(ctx, first))
	row()
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(b.Wait(ctx, next, 4*time.Second)) }()
	for h, err := b.Inspect(ctx, name); err == nil && h.Waiters == 0; h, err = b.Inspect(ctx, name) {
		time.Sleep(time.Millisecond)
	}
	row()
	released := time.Now()
	say("release", b.Release(ctx, first))
	say("wait", <-woken)
	say(fmt.Sprint("woken in time ", time.Since(released) < 3*time.Second), nil)
	next.Token, err = b.TryAcquire(ctx, next)
	say(fmt.Sprint("acquire ", next.Token > first.Token), err)
	say("release", b.Release(ctx, first))
	row()
	found := 0
	say("list", b.List(ctx, name, func(h driver.Holder) bool {
		if h.Name == name {
			found++
		}
		return true
	}))
	say(fmt.Sprint("listed ", found), nil)
	say("release", b.Release(ctx, next))
	say("withdraw", b.Withdraw(ctx, name, want(name, time.Second).Owner))
	row()
	return strings.Join(log, "; ")
}
