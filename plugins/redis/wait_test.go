package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// queue lets r wait in the background, until it is granted.
func queue(t *testing.T, b *Backend, r driver.Request) <-chan driver.Request {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), r)
	held(t, err)
	before := waiters(t, b, r.Name)
	granted := make(chan driver.Request, 1)
	go func() {
		defer close(granted)
		for t.Context().Err() == nil {
			pause := time.Second
			token, err := b.TryAcquire(t.Context(), r)
			var by *driver.HeldError
			switch {
			case err == nil:
				r.Token = token
				granted <- r
				return
			case errors.As(err, &by) && by.Holder.TTL > 0:
				pause = min(pause, by.Holder.TTL+time.Millisecond)
			}
			_, _ = b.Wait(t.Context(), r, pause)
		}
	}()
	eventually(t, "in the queue", func() bool { return waiters(t, b, r.Name) > before })
	return granted
}

func waiters(t *testing.T, b *Backend, name string) int {
	t.Helper()
	h, err := b.Inspect(t.Context(), name)
	must(t, err)
	return h.Waiters
}

func receive(t *testing.T, c <-chan driver.Request, what string) driver.Request {
	t.Helper()
	select {
	case r, ok := <-c:
		if !ok {
			t.Fatalf("%s: the wait ended", what)
		}
		return r
	case <-time.After(timeout):
		t.Fatalf("%s: not in %v", what, timeout)
		panic("unreachable")
	}
}

func TestQueueIsFIFOOverHosts(t *testing.T) {
	s := start(t, nil)
	holder := acquire(t, connect(t, at(s)), lease("a", "first"))
	b := connect(t, at(s))
	var turns []<-chan driver.Request
	for i := range 8 {
		turns = append(turns, queue(t, connect(t, at(s)), lease("a", fmt.Sprint("w", i))))
	}
	for i, turn := range turns {
		began := time.Now()
		must(t, b.Release(t.Context(), holder))
		if _, err := b.TryAcquire(t.Context(), lease("a", fmt.Sprint("barging", i))); err == nil {
			t.Fatal("a newcomer went before the queue")
		}
		next := receive(t, turn, fmt.Sprint("waiter ", i))
		if next.Token <= holder.Token {
			t.Errorf("token %d is not above %d", next.Token, holder.Token)
		}
		t.Logf("handoff %d in %v", i, time.Since(began))
		holder = next
	}
	must(t, b.Release(t.Context(), holder))
	acquire(t, b, lease("a", "last"))
}

// The lock must not stay free while its next waiter died or sleeps: who is next
// is woken after one turn each.
func TestQueueSkipsTheDead(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))

	gone := connect(t, at(s))
	must(t, backendtest.Err(gone.Wait(ctx, lease("a", "gone"), time.Millisecond)))
	must(t, gone.Close(ctx))
	asleep := connect(t, at(s))
	must(t, backendtest.Err(asleep.Wait(ctx, lease("a", "asleep"), time.Millisecond)))
	turn := queue(t, connect(t, at(s)), lease("a", "alive"))

	before := published(t, c)
	must(t, b.Release(ctx, holder))
	receive(t, turn, "the living waiter")
	if n := published(t, c) - before; n > 3 {
		t.Errorf("%.0f waiters were woken, and there are 3", n)
	}
}

// Waiters that went silent a moment ago, as frozen hosts do, get a turn each, for
// as long as their places live: 2 s in all, however many they are. Those that
// were silent for longer are passed over at once. A turn is one PUBLISH.
func TestSilentWaitersAreBounded(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	silent := connect(t, at(s))
	enter := func() {
		for i := range 40 {
			must(t, backendtest.Err(silent.Wait(ctx, lease("a", fmt.Sprint("silent", i)), time.Millisecond)))
		}
	}
	turns := func(what string) float64 {
		t.Helper()
		turn := queue(t, connect(t, at(s)), lease("a", "alive-"+what))
		if what == "later" {
			eventually(t, "the places of the silent have ended", func() bool { return !anyAlive(t, c, "silent") })
		}
		before := published(t, c)
		must(t, b.Release(ctx, holder))
		holder = receive(t, turn, "the living waiter")
		return published(t, c) - before
	}
	enter()
	if n := turns("soon"); n > 10 {
		t.Errorf("%.0f turns, and at most 2 s of turns of 250 ms and that of the living one are due", n)
	}
	enter()
	if n := turns("later"); n != 1 {
		t.Errorf("%.0f turns, and only the living one's is due", n)
	}
}

// anyAlive reports whether an owner of that prefix has a place in the queue of
// "a" that the server takes for alive.
func anyAlive(t *testing.T, c *goredis.Client, prefix string) bool {
	t.Helper()
	now := c.Time(t.Context()).Val().UnixMicro()
	for line := range strings.Lines(c.Get(t.Context(), "~l:{a}").Val()) {
		owner, rest, _ := strings.Cut(line, " ")
		until, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.ParseInt(until, 10, 64); strings.HasPrefix(owner, prefix) && err == nil && n >= now {
			return true
		}
	}
	return false
}

// It is the withdrawal itself that wakes the next one: nobody else asks here.
func TestWithdrawnWaiterPassesItsTurnOn(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w1"), time.Millisecond)))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w2"), time.Millisecond)))
	must(t, b.Release(ctx, holder)) // w1 is woken
	before := published(t, c)
	must(t, b.Release(ctx, lease("a", "w1"))) // and gives up
	if n := published(t, c) - before; n != 1 {
		t.Errorf("%.0f waiters were woken, want the next one", n)
	}
	acquire(t, b, lease("a", "w2"))
}

// A turn that was given before the server's clock stepped back does not last
// longer than any other.
func TestTurnIsBounded(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w"), time.Millisecond)))
	must(t, b.Release(ctx, holder))
	ahead := c.Time(ctx).Val().Add(20 * time.Second).UnixMicro()
	must(t, c.SetRange(ctx, "~l:{a}", 0, fmt.Sprint(ahead)).Err())
	_, err := b.TryAcquire(ctx, lease("a", "next"))
	if h := held(t, err); h.TTL > 250*time.Millisecond {
		t.Errorf("the free lock is kept for %v", h.TTL)
	}
}

// Waiters and withdrawals of one lock cost others a look whether they are
// theirs, and no more.
func TestOthersWaitersAreCheap(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	acquire(t, b, lease("busy", "first"))
	must(t, backendtest.Err(b.Wait(ctx, lease("busy", "w"), time.Millisecond)))
	must(t, b.Release(ctx, lease("busy", "gave up")))
	must(t, b.Release(ctx, acquire(t, b, lease("a", "o")))) // the script is known
	must(t, c.ConfigResetStat(ctx).Err())
	const cycles = 20
	for i := range cycles {
		must(t, b.Release(ctx, acquire(t, b, lease("a", fmt.Sprint("o", i)))))
	}
	if per := scripted(t, c) / cycles; per > 9 {
		t.Errorf("%.1f commands inside the scripts of a cycle", per)
	}
}

// A grant that goes from host to host is four requests: the refusal, the place
// in the queue, the release and the grant.
func TestHandoffIsCheap(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "o"))
	const grants = 20
	for i := range grants + 1 {
		if i == 1 { // the scripts are known
			must(t, c.ConfigResetStat(ctx).Err())
		}
		next := lease("a", fmt.Sprint("o", i))
		_, err := b.TryAcquire(ctx, next)
		held(t, err)
		must(t, backendtest.Err(b.Wait(ctx, next, time.Millisecond)))
		must(t, b.Release(ctx, holder))
		holder = acquire(t, b, next)
	}
	if per := scripted(t, c) / grants; per > 15.5 {
		t.Errorf("%.1f commands inside the scripts of a grant", per)
	}
}

// scripted is how many commands scripts have run.
func scripted(t *testing.T, c *goredis.Client) (total float64) {
	t.Helper()
	info, err := c.Info(t.Context(), "commandstats").Result()
	must(t, err)
	for line := range strings.Lines(info) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if ok && name != "evalsha" && name != "config|resetstat" {
			total += commandCalls(info, name)
		}
	}
	return total
}

// Waiters ask once a second at most, however many they are.
func TestIdleWaitersAreCheap(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	acquire(t, b, lease("a", "first"))
	const n = 10
	for i := range n {
		queue(t, b, lease("a", fmt.Sprint("w", i)))
	}
	calls := func() float64 {
		var all float64
		info, err := c.Info(t.Context(), "commandstats").Result()
		must(t, err)
		for _, name := range []string{"evalsha", "ping"} {
			all += commandCalls(info, name)
		}
		return all
	}
	before, began := calls(), time.Now()
	<-time.After(3 * time.Second)
	per := (calls() - before) / time.Since(began).Seconds() / n
	t.Logf("%.2f commands per waiter and second", per)
	if per > 1.3 {
		t.Errorf("%.2f commands per waiter and second", per)
	}
}

// A broken connection wakes every waiter: what was published meanwhile is lost.
func TestBrokenConnectionWakes(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	acquire(t, b, lease("a", "first"))
	done := make(chan error, 1)
	go func() { done <- backendtest.Err(b.Wait(t.Context(), lease("a", "w"), time.Minute)) }()
	eventually(t, "in the queue", func() bool { return waiters(t, b, "a") == 1 })
	must(t, c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(timeout):
		t.Fatal("still asleep")
	}
	go func() { done <- backendtest.Err(b.Wait(t.Context(), lease("a", "w"), time.Minute)) }()
	eventually(t, "asleep again", func() bool { return b.wakeupsUp() })
	h, err := b.Inspect(t.Context(), "a")
	must(t, err)
	must(t, b.Break(t.Context(), "a", h.Token))
	must(t, <-done)
}

func (b *Backend) wakeupsUp() bool {
	link, _ := b.node.Wakeups.Link()
	return link.Up
}

// published is how many wake-ups the server has sent so far.
func published(t *testing.T, c *goredis.Client) float64 {
	t.Helper()
	info, err := c.Info(t.Context(), "commandstats").Result()
	must(t, err)
	return commandCalls(info, "publish")
}

// commandCalls reads "cmdstat_NAME:calls=7,..." from INFO commandstats.
func commandCalls(info, name string) float64 {
	_, rest, _ := strings.Cut(info, "cmdstat_"+name+":calls=")
	number, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.ParseFloat(number, 64)
	return n
}

// To keep a place alive costs the server a few bytes, however many wait. When
// each waiter wrote the whole queue, 100 hosts wrote 0.7 MB a second.
func TestPlacesAreKeptCheaply(t *testing.T) {
	s := start(t, &redisserver.Options{AppendFsync: redisserver.FsyncEverySec})
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	const n = 100
	waiter := func(i int) driver.Request { return lease("a", fmt.Sprintf("waiter%020d", i)) }
	for i := range n {
		must(t, backendtest.Err(b.Wait(ctx, waiter(i), time.Millisecond)))
	}
	before := written(t, c)
	for i := range n {
		_, err := b.TryAcquire(ctx, waiter(i))
		held(t, err)
	}
	if per := (written(t, c) - before) / n; per > 200 {
		t.Errorf("%d bytes written for each of %d waiters", per, n)
	}
	if got := waiters(t, b, "a"); got != n {
		t.Errorf("%d wait, want %d", got, n)
	}
	must(t, b.Release(ctx, holder))
	acquire(t, b, waiter(0))
}

// written is how long the server's append-only file is.
func written(t *testing.T, c *goredis.Client) int {
	t.Helper()
	info, err := c.Info(t.Context(), "persistence").Result()
	must(t, err)
	_, rest, _ := strings.Cut(info, "aof_current_size:")
	text, _, _ := strings.Cut(rest, "\r\n")
	size, err := strconv.Atoi(text)
	must(t, err)
	return size
}

// A waiter whose plugin was replaced keeps its place, and is woken where it
// listens now.
func TestPlaceOutlivesThePlugin(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	before := connect(t, at(s))
	must(t, backendtest.Err(before.Wait(ctx, lease("a", "w1"), time.Millisecond)))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w2"), time.Millisecond)))
	must(t, before.Close(ctx))
	line := func() string {
		line, _, _ := strings.Cut(strings.TrimPrefix(c.Get(ctx, "~l:{a}").Val(), "0\n"), "\n")
		return line
	}
	channel := line()[strings.LastIndex(line(), " "):]
	after := connect(t, at(s))
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(after.Wait(ctx, lease("a", "w1"), timeout)) }()
	eventually(t, "it listens elsewhere, at the same place", func() bool {
		return strings.HasPrefix(line(), "w1 ") && !strings.HasSuffix(line(), channel)
	})
	must(t, b.Release(ctx, holder))
	must(t, <-woken)
	acquire(t, after, lease("a", "w1"))
}
