package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

type clock struct{ *inject.Clock }

func (c clock) shift(t testing.TB, by time.Duration) {
	t.Helper()
	must(t, c.Shift(by))
}

func startShiftable(t *testing.T, count int) (servers.Nodes, []clock) {
	t.Helper()
	dir := t.TempDir()
	library, err := inject.ClockLibrary(t.Context(), dir)
	if err != nil {
		servers.Missing(t, "cc", fmt.Errorf("%w: %w", servers.ErrNotInstalled, err))
	}
	var nodes servers.Nodes
	var clocks []clock
	for i := range count {
		c, err := inject.NewClock(library, dir, fmt.Sprint("clock", i))
		must(t, err)
		nodes = append(nodes, start(t, 1, &redisserver.Options{Wrap: c.Wrap()})...)
		clocks = append(clocks, clock{c})
	}
	return nodes, clocks
}

func TestClockOfANodeMoves(t *testing.T) {
	nodes, clocks := startShiftable(t, 1)
	c := plain(t, nodes[0])
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		clocks[0].shift(t, by)
		now, err := c.Time(t.Context()).Result()
		must(t, err)
		if off := time.Until(now) - by; off < -time.Second || off > time.Second {
			t.Errorf("after a shift of %v the clock is off by %v", by, off)
		}
	}
}

// The clock of one node is an hour ahead, and then an hour behind. Tokens must still rise, and must
// not be far ahead of the clocks of the majority.
func TestClockOfOneNodeAhead(t *testing.T) {
	nodes, clocks := startShiftable(t, 5)
	cfg := configOf(nodes, nil)
	must(t, initialise(t.Context(), cfg))
	b := connect(t, cfg)
	must(t, b.Check(t.Context()))
	var last uint64
	next := func(when string) {
		t.Helper()
		r := acquire(t, b, lease("a", fmt.Sprint("o", time.Now().UnixNano())))
		if r.Token <= last {
			t.Errorf("%s: token %d is not above %d", when, r.Token, last)
		}
		if ahead := time.Until(time.UnixMicro(int64(r.Token))); ahead > time.Minute {
			t.Errorf("%s: the token is %v ahead of the clocks of the majority", when, ahead)
		}
		last = r.Token
		must(t, b.Release(t.Context(), r))
	}
	next("before")
	clocks[0].shift(t, time.Hour)
	for range 20 {
		next("one node ahead")
	}
	clocks[0].shift(t, -time.Hour)
	for range 20 {
		next("one node behind")
	}
}

// Between the two rounds of an acquire, the clocks of a majority jump ahead. So this acquire's keys
// expire on the majority, and a second owner is granted the lock. The interrupted acquire must
// fail, although its second round reaches every node.
func TestClockJumpsBetweenRounds(t *testing.T) {
	nodes, clocks := startShiftable(t, 5)
	cfg := configOf(nodes, nil)
	must(t, initialise(t.Context(), cfg))
	b, other := connect(t, cfg), connect(t, cfg)
	must(t, b.Check(t.Context()))
	must(t, other.Check(t.Context()))

	first := b.acquire(lease("a", "first"))
	for _, n := range b.nodes {
		n.ahead.Store(0) // makes the guessed token too low, so that there is a second round
	}
	must(t, b.send(first.now))
	eventually(t, "every node has voted", func() bool { return count(first.now.result(), is(missing)) == 0 })
	if !first.next() || first.now.kind != kindToken {
		t.Fatalf("no second round: %+v", first)
	}
	for _, c := range clocks[:3] {
		c.shift(t, time.Hour)
	}
	for _, s := range nodes[3:] { // on these two nodes the first owner's keys do not expire
		must(t, s.Freeze())
	}
	second := acquire(t, other, lease("a", "second"))
	for _, s := range nodes[3:] {
		must(t, s.Resume())
	}
	for more := true; more; more = first.next() {
		must(t, b.send(first.now))
		<-first.now.decided
	}
	if res := first.result(); res.Err == nil {
		t.Fatalf("both were granted: tokens %d and %d", res.Token, second.Token)
	}
	must(t, other.Renew(t.Context(), second))
}

// Three nodes have the last token. Two of these nodes have wrong clocks and then freeze. The third
// node loses its data and votes again later. The next token must still be higher than the last one.
func TestTokenAfterClockJumpAndWipe(t *testing.T) {
	nodes, clocks := startShiftable(t, 5)
	cfg := configOf(nodes, driver.Config{"max_ttl": "2s", "node_timeout": "100ms"})
	must(t, initialise(t.Context(), cfg))
	b := connect(t, cfg)
	must(t, b.Check(t.Context()))
	cutOff(t, b, nodes[3:])
	r := lease("a", "o1")
	r.TTL = 2 * time.Second
	// Each clock is wrong by less than max_ttl (2 s), so tokens must still rise.
	clocks[0].shift(t, 1500*time.Millisecond)
	clocks[1].shift(t, -1500*time.Millisecond)
	r = acquire(t, b, r)
	must(t, b.Release(t.Context(), r))
	wiped(t, b, nodes)
	if next := acquireSoon(t, b, "a"); next.Token <= r.Token {
		t.Errorf("token %d after the wipe is not above %d", next.Token, r.Token)
	}
}
