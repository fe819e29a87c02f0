package mysql

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// For speed, one operation has several SQL texts: short and long acquires, texts for one
// lease and for many, releases that wake a waiter and releases that do not. All texts of an
// operation must decide alike. So these tests put a row into a random state, send each text
// at the same time of the server's clock, and compare the replies and the resulting rows.

// bench is a backend with one session, in which the server's clock is stopped (SET timestamp).
type bench struct {
	b *Backend
	s *conn.Session
}

// textServer is this file's server. It is global, because a server without references is stopped.
var textServer struct {
	sync.Once
	*servers.Server
	address string
	err     error
}

func textAddress(t testing.TB) string {
	t.Helper()
	textServer.Do(func() {
		if textServer.address = os.Getenv("LOCKBENCH_TEST_MYSQL"); textServer.address != "" {
			return
		}
		if textServer.Server, textServer.err = mysqlserver.Start(context.Background(), &mysqlserver.Options{Relaxed: true}); textServer.err == nil {
			textServer.address = mysqlserver.Address(textServer.Server)
		}
	})
	if textServer.err != nil {
		servers.Missing(t, "mysql", textServer.err)
	}
	return textServer.address
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b, err := Open(&Options{Address: textAddress(t), Prefix: fmt.Sprintf("texts%d_", rand.Uint32()), Logger: slog.New(slog.DiscardHandler)})
	backendtest.Must(t, err)
	backendtest.Must(t, b.Check(t.Context()))
	s, err := b.pool.Get(t.Context())
	backendtest.Must(t, err)
	w := &bench{b, s}
	t.Cleanup(func() {
		ctx := context.Background()
		_, _, _ = s.Exec(ctx, "DROP TABLE "+b.table)
		b.pool.Put(s)
		_ = b.Close(ctx)
	})
	w.exec(t, "SET timestamp=2000000000.5")
	backendtest.Must(t, s.Query(t.Context(), statement.Sign("living", 0, statement.Signed{}), func([]sqldriver.Value) error { return nil }))
	return w
}

func (w *bench) exec(t testing.TB, text string) {
	t.Helper()
	if _, _, err := w.s.Exec(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// situation is the state of a row and a request for its lock.
type situation struct {
	row     string // columns and values of an INSERT; empty if there is no row
	request driver.Request
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func newSituation(seed uint64) (c situation) {
	r := rand.New(rand.NewPCG(seed, 1))
	at := func(offsets ...string) string {
		return statement.Now + "+INTERVAL " + pick(r, offsets...) + " SECOND_MICROSECOND"
	}
	owner := func() string { return fmt.Sprint("o-", 1+r.IntN(3)) }
	list := func(entry func(i int) string) (all string) {
		for _, i := range r.Perm(3)[:r.IntN(4)] {
			all += entry(i + 1)
		}
		return all
	}
	tombstones := func() string {
		some := list(func(i int) string { return fmt.Sprint("o-", i, ",") })
		if some == "" || r.IntN(2) == 0 {
			return ""
		}
		return "," + some
	}
	const part = 2_000_000_000_500_000 / 200_000
	queue := ""
	if r.IntN(2) == 0 {
		queue = list(func(i int) string {
			return fmt.Sprint(",o-", i, ".", pick(r, "living", "living", "silent"), ".", pick(r, 0, 0, part-2, part-3), ".", pick(r, 300000, 3000000), ".", pick(r, "", "6c"), ".", pick(r, "-", "", "76"), ".", pick(r, 1, 77+i))
		})
	}
	token := pick(r, "0", "7", "1999999999999999", "2000000000499999", "2000000000500000", "2000000100000000")
	c.request = driver.Request{Name: "n", Owner: owner(), Label: "asks", TTL: pick(r, time.Second, 3*time.Second), Value: pick(r, nil, []byte("w"))}
	barred, old := tombstones(), ""
	since := pick(r, "-61.0", "-30.0", "0.0", "5.0")
	if barred != "" {
		old = tombstones()
	}
	if owner := "," + c.request.Owner + ","; !strings.Contains(barred+old, owner) {
		since = pick(r, since, "-100000.0", "-121.0", "-120.0") // old tombstones may be gone
	}
	if r.IntN(10) > 0 {
		c.row = fmt.Sprintf("(name,owner,token,expires_at,attempt,ttl_us,label,value,queue,barred,barred_old,barred_since)VALUES('n','%s',%s,%s,%d,%d,'%s',%s,'%s','%s','%s',%s)",
			pick(r, "", owner()), token, at("-200000.0", "-10.0", "-2.000001", "-2.0", "-1.5", "-1.0", "-0.000001", "0.0", "0.000001", "1.0", "3.0", "3.000001", "20.0"),
			pick(r, 0, 1, 99), pick(r, 0, 1000000, 3000000, 10000000), pick(r, "", "l"), pick(r, "NULL", "'v'"), queue, barred, old, at(since))
	}
	_, _ = fmt.Sscan(pick(r, token, "7"), &c.request.Token)
	return c
}

type way func(ctx context.Context, w *bench, r driver.Request) (driver.Result, error)

// alone returns a function that sends a request in a statement without other requests. The knows
// function sets what the backend remembers of the lock, and so decides which text is sent.
func alone(batcher func(*Backend) *batcher, knows func(*Backend, string)) way {
	return func(ctx context.Context, w *bench, r driver.Request) (driver.Result, error) {
		return w.ask(ctx, batcher(w.b), knows, newOperation(r))
	}
}

// among returns a function that sends a request and a request for another lock in one statement.
func among(batcher func(*Backend) *batcher, knows func(*Backend, string)) way {
	return func(ctx context.Context, w *bench, r driver.Request) (driver.Result, error) {
		other := r
		other.Name, other.Owner = "a", "another"
		return w.ask(ctx, batcher(w.b), knows, newOperation(r), newOperation(other))
	}
}

func nothing(*Backend, string)           {}
func waitedFor(b *Backend, name string)  { b.contended.Put(name, struct{}{}) }
func heldBefore(b *Backend, name string) { b.rows.Put(name, struct{}{}) }

func (w *bench) ask(ctx context.Context, l *batcher, knows func(*Backend, string), ops ...statement.Operation) (driver.Result, error) {
	w.b.contended, w.b.rows = kit.Recent[string, struct{}]{}, kit.Recent[string, struct{}]{}
	knows(w.b, ops[0].Name)
	results, then, err := l.run(ctx, w.s, ops)
	if then != nil {
		then()
	}
	return append(results, driver.Result{})[0], err
}

// For each operation, ways has functions that send different SQL texts. Their results must agree.
var ways = map[string][]way{
	"acquire": {alone(acquiresOf, nothing), alone(acquiresOf, heldBefore), alone(acquiresOf, waitedFor), among(acquiresOf, nothing), among(acquiresOf, waitedFor)},
	"renew":   {alone(renewalsOf, nothing), among(renewalsOf, nothing)},
	"release": {alone(releasesOf, nothing), alone(releasesOf, waitedFor), among(releasesOf, nothing)},
}

func acquiresOf(b *Backend) *batcher { return &b.acquires }
func renewalsOf(b *Backend) *batcher { return &b.renewals }
func releasesOf(b *Backend) *batcher { return &b.releases }

// play puts the row of the situation c into the table and lets the ask function send c's request.
// It returns the reply, and the row after the request.
func (w *bench) play(t testing.TB, c situation, ask way) string {
	t.Helper()
	begin := "DELETE FROM " + w.b.table
	if c.row != "" {
		begin += ";INSERT INTO " + w.b.table + c.row
	}
	w.exec(t, begin)
	result, err := ask(t.Context(), w, c.request)
	if err != nil {
		return "failed: " + err.Error()
	}
	answer := fmt.Sprintf("token %d, %v", result.Token, result.Err)
	if held := (*driver.HeldError)(nil); errors.As(result.Err, &held) {
		answer += fmt.Sprintf(", %+v", held.Holder)
	}
	// Ignore what may differ: the random numbers in attempt and freed_by,
	// attempt in a free row, and old tombstones, which only some texts remove.
	old := "barred_since<" + statement.Now + "-INTERVAL 2 MINUTE"
	err = w.s.Query(t.Context(), "SELECT CONCAT_WS(' ',HEX(owner),token,expires_at,IF(owner='','',IF(attempt<100,attempt,'new')),LEAST(freed_by,2),ttl_us,HEX(label),COALESCE(value,'NULL'),queue,IF("+
		old+",'',barred),IF("+old+",'',barred_old)) FROM "+w.b.table+" WHERE name='n'", func(v []sqldriver.Value) error {
		answer += "\n  row " + conn.String(v[0])
		return nil
	})
	backendtest.Must(t, err)
	return answer
}

// differ describes two ways whose results differ in the situation of seed. "" means that all agree.
func (w *bench) differ(t testing.TB, seed uint64) string {
	t.Helper()
	c := newSituation(seed)
	for _, op := range []string{"acquire", "renew", "release"} {
		var first string
		for i, ask := range ways[op] {
			got := w.play(t, c, ask)
			if i > 0 && got != first {
				return fmt.Sprintf("seed %d: %s by %s with token %d of %s\nway 0: %s\nway %d: %s", seed, op, c.request.Owner, c.request.Token, c.row, first, i, got)
			}
			first = cmp.Or(first, got)
		}
	}
	return ""
}

const situations = 160

func TestTextsAgree(t *testing.T) {
	w := newBench(t)
	for seed := range uint64(situations) {
		if d := w.differ(t, seed); d != "" {
			t.Error(d)
		}
	}
}

// FuzzTexts repeats TestTextsAgree for other situations.
func FuzzTexts(f *testing.F) {
	w := newBench(f)
	f.Add(uint64(situations))
	f.Fuzz(func(t *testing.T, seed uint64) {
		if d := w.differ(t, seed); d != "" {
			t.Error(d)
		}
	})
}

// mutant is a connection that simulates a bug. In one text it replaces the string old by new.
type mutant struct {
	sqldriver.Conn
	of       string // a string that only the text to change contains
	old, new string
	changed  int
}

func (m *mutant) change(text string) string {
	if !strings.Contains(text, m.of) || !strings.Contains(text, m.old) {
		return text
	}
	m.changed++
	return strings.Replace(text, m.old, m.new, 1)
}

func (m *mutant) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return m.Conn.(sqldriver.QueryerContext).QueryContext(ctx, m.change(text), args)
}

func (m *mutant) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return m.Conn.(sqldriver.ExecerContext).ExecContext(ctx, m.change(text), args)
}

// TestTextsAgreeFindsBugs puts a bug into one text at a time. The comparison with the other texts
// must find each bug. The parts of the long acquire text that handle queues and tombstones get no
// bug, because no other text has such parts.
func TestTextsAgreeFindsBugs(t *testing.T) {
	w := newBench(t)
	if !w.s.Server.MariaDB {
		t.Skip("the texts of MySQL are others")
	}
	const short, long, row, lease, leases, pass = " AND queue='' AND barred='',VALUES", "CONCAT(',',VALUES(owner),',')", "SET token=LAST_INSERT_ID(", " WHERE name=x", ")AND(name,owner,token)IN(", "NOT ATOMIC"
	for _, m := range []mutant{
		{of: short, old: " AND queue=''", new: ""},
		{of: short, old: " AND barred=''", new: ""},
		{of: short, old: "expires_at<=" + statement.Now + " AND", new: "TRUE AND"},
		{of: short, old: "GREATEST(token+1,VALUES(token))", new: "VALUES(token)"},
		{of: short, old: "value=IF(attempt=VALUES(attempt),VALUES(value),value)", new: "value=VALUES(value)"},
		{of: row, old: " AND queue=''", new: ""},
		{of: row, old: " AND barred=''", new: ""},
		{of: row, old: " AND expires_at<=" + statement.Now, new: ""},
		{of: row, old: "token+1", new: "token"},
		{of: row, old: ",attempt=", new: ",freed_by="},
		{of: row, old: ",owner=", new: ",label="},
		{of: row, old: ",ttl_us=", new: ",ttl_us=1+"},
		{of: long, old: "attempt=IF(" + statement.Free, new: "attempt=IF(owner=''"},
		{of: long, old: "token=IF(attempt=VALUES(attempt),GREATEST(token+1,", new: "token=IF(attempt=VALUES(attempt),GREATEST(token,"},
		{of: long, old: "owner=IF(attempt=VALUES(attempt),VALUES(owner),owner)", new: "owner=VALUES(owner)"},
		{of: long, old: "label=IF(attempt=VALUES(attempt),VALUES(label),label)", new: "label=label"},
		{of: lease, old: " AND token=", new: " AND 0<>"},
		{of: lease, old: " AND expires_at>" + statement.Now, new: ""},
		{of: leases, old: ")AND expires_at>" + statement.Now, new: ")"},
		{of: leases, old: "AND(name,owner,token)IN(", new: "OR(name,owner,token)IN("},
		{of: pass, old: "UNHEX(", new: "CONCAT("},
		{of: pass, old: "IF(attempt=1,0,attempt)", new: "1"},
		{of: pass, old: "='-',NULL,", new: "='-','',"},
		{of: pass, old: "SUBSTRING(queue,LOCATE", new: "CONCAT(queue,LOCATE"},
	} {
		m.Conn = w.s.Conn
		w.s.Conn = &m
		found := false
		for seed := uint64(0); seed < situations && !found; seed++ {
			found = w.differ(t, seed) != ""
		}
		w.s.Conn = m.Conn
		switch {
		case m.changed == 0:
			t.Errorf("no text with %q contains %q", m.of, m.old)
		case !found:
			t.Errorf("%q for %q in the text with %q is not noticed", m.new, m.old, m.of)
		}
	}
}
