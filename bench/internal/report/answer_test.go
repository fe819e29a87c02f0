package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

func choiceOf(t *testing.T, r Report, need string) choice {
	t.Helper()
	all := r.answer().Choices
	i := slices.IndexFunc(all, func(c choice) bool { return strings.HasPrefix(c.Need, need) })
	if i < 0 {
		t.Fatalf("no choice for %q in %+v", need, all)
	}
	return all[i]
}

func TestChoicesAreOfThisRun(t *testing.T) {
	r := everything(t, false)
	for need, want := range map[string]struct{ take, others string }{
		"hand-over":             {"etcd", "redis (appendfsync off) 2.0x slower"},
		"failover time, kill-m": {"", "these runs show no difference"},
	} {
		c := choiceOf(t, r, need)
		if strings.Join(c.Take, " ") != want.take || c.Others != want.others {
			t.Errorf("%s: %+v, want %+v", need, c, want)
		}
	}
	for _, c := range r.answer().Choices {
		if slices.Contains(c.Take, "memory") {
			t.Errorf("memory, which other hosts do not see, is a candidate: %+v", c)
		}
	}
}

// TestChoicesAreWhole checks that choices say what a faster library lacks, why a backend has no
// figure, and with which settings grants of a backend survive a crash.
func TestChoicesAreWhole(t *testing.T) {
	r := everything(t, false)
	if got, want := choiceOf(t, r, "lowest uncontended latency").Libraries, "redislock 2.0x faster, without token, renewal or release at a crash"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c := choiceOf(t, r, "grants that survive a server's crash")
	if strings.Join(c.Take, " ") != "etcd" || c.Measured != "etcd: raft" || c.Others != "not by the settings that were read: redis: appendfsync off" {
		t.Errorf("%+v", c)
	}
	many := []float64{1e6, 1e6, 1e6, 1e6}
	r.Tables = nil
	for _, clients := range []int{1, 64} {
		r.Tables = append(r.Tables, Table{CellName: results.CellName{Scenario: acquireScenario, Clients: clients}, Rows: []Row{
			row(testSubjects[0], map[string][]float64{"p50-ns/acquire": many, "p99-ns/acquire": many}, nil),
			row(testSubjects[2], map[string][]float64{"p50-ns/acquire": many, "p99-ns/acquire": many[:2]}, nil),
		}})
	}
	c = choiceOf(t, r, "p99 under load")
	if strings.Join(c.Take, " ") != "redis" || c.Others != "etcd has too few samples for it" {
		t.Errorf("%+v", c)
	}
	if text := output(t, r, "text"); !strings.Contains(strings.Join(strings.Fields(text), " "), "A blank figure had too few samples in some run: p99 of acquire needs 500") {
		t.Error(text)
	}
}

// TestTTLAdvice checks that at least half of the advised TTL, and of each longer TTL, was left at
// each renewal. The advice must also list shorter TTLs, down to a TTL that lost a lease.
func TestTTLAdvice(t *testing.T) {
	var cells []results.Cell
	for i, one := range []struct {
		ttl, spent time.Duration
		lost       float64
	}{{2 * time.Second, 700 * time.Millisecond, 0}, {time.Second, 895 * time.Millisecond, 0}, {500 * time.Millisecond, 200 * time.Millisecond, 3}, {200 * time.Millisecond, 70 * time.Millisecond, 9}} {
		for run := range 2 {
			c := results.Cell{
				Section: section("ttl", "redis", 100, run), Latencies: map[string][]int64{"spent": {1e6, int64(one.spent)}},
				Values: map[string]float64{"lost-leases": one.lost, "losing-stalls": min(1, one.lost), "watched-s": 30, "max-ns/stall": 2e7},
			}
			c.Mode = one.ttl.String()
			if i == 0 {
				c.Latencies["overdue"], c.Values["max-ns/overdue"] = []int64{1e8}, 1e8
			}
			cells = append(cells, c)
		}
	}
	r := reported(t, cells)
	c := choiceOf(t, r, "the shortest TTL for redis")
	if strings.Join(c.Take, " ") != "2s" || c.Measured != "no false loss in 4 renewals; a lost machine is replaced within 2.10s" ||
		c.Others != "1s: no false loss in 4 renewals, but only 10 % of it was left once. 500ms: 6 false losses in 2 stalls" {
		t.Errorf("%+v", c)
	}
	if note := r.answer().Note; !strings.HasSuffix(note, "No false loss in 1m0s means, with 95 % confidence, that a stall which causes one comes less than once in 20s (rule of three): --for 3h could show less than once an hour. More --clients may show a shorter TTL for more leases.") {
		t.Error(note)
	}
	for format, want := range map[string]string{"text": "redis (plugin) 200ms 4 ", "md": "| redis (plugin) | 200ms | 4 |", "json": `"need": "the shortest TTL for redis, for up to 1 leases of a host", "take": [ "2s" ],`, "html": "the shortest TTL for redis"} {
		if got := strings.Join(strings.Fields(output(t, r, format)), " "); !strings.Contains(got, want) {
			t.Errorf("no %q in the %s:\n%s", want, format, got)
		}
	}
}

// TestTTLAdviceForMany checks that the report also advises a longer TTL if a host can renew only
// few leases with the shortest advised TTL. Each number of clients gets its own advice.
func TestTTLAdviceForMany(t *testing.T) {
	var cells []results.Cell
	for _, ttl := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		for _, clients := range []int{100, 200} {
			c := results.Cell{Section: section("ttl", "redis", clients, 0), Latencies: map[string][]int64{"spent": slices.Repeat([]int64{1e6}, 9000)}, Values: map[string]float64{"watched-s": 9}}
			c.Mode = ttl.String()
			cells = append(cells, c)
		}
	}
	var got []string
	for _, c := range reported(t, cells).ttlChoices() {
		got = append(got, c.Need+": "+c.Take[0])
	}
	if want := []string{"the shortest TTL for redis, for up to 100 leases of a host: 100ms", "the shortest TTL for redis, for up to 1,000 leases of a host: 1s"}; !slices.Equal(got, append(want[:1:1], want...)) {
		t.Errorf("got %q, want %q after the first of them", got, want)
	}
}

func TestUnsafeIsNoCandidate(t *testing.T) {
	r := everything(t, true)
	for _, c := range r.answer().Choices {
		if slices.Contains(c.Take, "redis") {
			t.Errorf("%+v", c)
		}
	}
	if note := r.answer().Note; !strings.Contains(note, "redis is no candidate: BROKEN") || strings.Contains(note, "--runs") {
		t.Error(note)
	}
}

func TestTakeoversAreShares(t *testing.T) {
	r := everything(t, false)
	views := r.distributions(takeoverScenario)[0].Views
	if len(views) != 2 {
		t.Fatalf("%d views, want one for each mode", len(views))
	}
	for _, v := range views {
		for _, l := range v.Lines {
			if last := l.Points[len(l.Points)-1]; last[1] != 1 || v.Band.Until != 1e10 {
				t.Errorf("%s ends at a share of %v, the band at %v", l.Name, last[1], v.Band.Until)
			}
		}
	}
}

func TestCommandRepeatsThePlan(t *testing.T) {
	want := "lockbench run --backends=redis,etcd --scenarios=acquire --measure=200ms --runs=6 --ttl=10s --seed=42 --target=etcd=ADDRESS"
	if got := reported(t, acquires(1, false)).command(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r := reported(t, acquires(1, false))
	r.Manifest.Plan.Measurems = 1000
	if got := r.command(); strings.Contains(got, "--measure") {
		t.Errorf("the usual measured time needs no flag: %s", got)
	}
	p := &r.Manifest.Plan
	p.Claims, p.Config, p.MTLS = []string{"mine"}, []string{"mine.url"}, false
	if got := r.command(); !strings.Contains(got, "--backends=redis,etcd --claims=mine=FILE --config=mine.url=VALUE --mtls=off --") {
		t.Errorf("what a plugin needs is missing: %s", got)
	}
}

// TestDrawingOrdersByPromise checks that the drawing has one lane (row) for each promise, with the
// strongest promise on top, and that faster backends have their marks further to the right.
func TestDrawingOrdersByPromise(t *testing.T) {
	d := everything(t, false).answer().Drawing
	var got []string
	var all []mark
	for _, l := range d.Lanes {
		for _, m := range l.Marks {
			name, _, _ := strings.Cut(m.Label, " ")
			got, all = append(got, l.Tokens+": "+name), append(all, m)
		}
	}
	want := "tokens as durable as the data: redis, no tokens: redislock"
	if strings.Join(got, ", ") != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if all[1].At <= all[0].At || !all[1].Pale || all[0].Pale {
		t.Errorf("the baseline is faster and pale, the backend is not: %+v", all)
	}
	for _, m := range all {
		if m.At < margin || m.At > 100-margin || m.From < margin || m.From+m.Wide > 100-margin+0.01 {
			t.Errorf("%s lies outside: %+v", m.Label, m)
		}
	}
}

func TestDrawingInText(t *testing.T) {
	text := output(t, everything(t, false), "text")
	at := -1
	for _, want := range []string{"safe: ", "Speed against guarantees", "● redis ", "redislock ○", "which one should I use", "summary", "\nnotes"} {
		i := strings.Index(text, want)
		if i <= at {
			t.Errorf("%q is missing or stands too early in\n%s", want, text)
		}
		at = i
	}
}

func TestNotesAreFolded(t *testing.T) {
	if got := headed([]string{"the machine was busy: a", "the machine was busy: b", "run 1 of 3 differs from the rest: c"}); got != "Before you believe the figures: the machine was busy; run 1 of 3 differs from the rest" {
		t.Errorf("%+v", got)
	}
	r := Report{Manifest: results.Manifest{Skipped: []string{"mysql: not installed", "etcd: not installed", "memory in scenario takeover"}}}
	if got := strings.Join(r.omissions(), "|"); got != "left out: mysql and etcd: not installed|left out: memory in scenario takeover" {
		t.Error(got)
	}
}
