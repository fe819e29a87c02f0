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
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// queue lets r.Owner wait for a held lock. The channel gets r with the token of the grant.
func queue(t *testing.T, b *Backend, r driver.Request) <-chan driver.Request {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), r)
	held(t, err)
	before := waiters(t, b, r.Name)
	turn := pursue(t, b, r)
	eventually(t, "in the queue", func() bool { return waiters(t, b, r.Name) > before })
	return turn
}

// pursue is like func queue, but the lock may be free, or its queue may already have the owner.
func pursue(t *testing.T, b *Backend, r driver.Request) <-chan driver.Request {
	t.Helper()
	turn := make(chan driver.Request, 1)
	go func() {
		defer close(turn)
		for t.Context().Err() == nil {
			pause := time.Second
			var g driver.Grant
			token, err := b.TryAcquire(t.Context(), r)
			var by *driver.HeldError
			if errors.As(err, &by) && by.Holder.TTL > 0 {
				pause = min(pause, by.Holder.TTL+time.Millisecond)
			}
			if err != nil {
				g, _ = b.Wait(t.Context(), r, pause)
			}
			if r.Token = token + g.Token; r.Token != 0 {
				turn <- r
				return
			}
		}
	}()
	return turn
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

// A living waiter behind a dead waiter and a frozen one must get the lock. The store skips the dead
// waiter, and the grant to the frozen waiter ends after 0.5 s.
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
	// Each of the three waiters gets at most one push.
	if n := published(t, c) - before; n > 3 {
		t.Errorf("%.0f pushes to 3 waiters", n)
	}
}

// The plugin of a frozen host sends signs of life for 2 s more. During these 2 s, the store grants
// the lock to the host's waiters one by one, for 0.5 s each. Later the store skips all of them at
// once. So the delay does not grow with the number of waiters. The test counts PUBLISH commands:
// one for each grant, and one for the living waiter.
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
	pushes := func(what string) float64 {
		t.Helper()
		turn := queue(t, connect(t, at(s)), lease("a", "alive-"+what))
		if what == "later" {
			eventually(t, "the silent are not heard of", func() bool { return !signs(t, c, process(t, c, "silent0")) })
		}
		before := published(t, c)
		must(t, b.Release(ctx, holder))
		holder = receive(t, turn, "the living waiter")
		return published(t, c) - before
	}
	enter()
	if n := pushes("soon"); n > 12 {
		t.Errorf("%.0f pushes, and at most 2.4 s of spans of 500 ms and that of the living one are due", n)
	}
	enter()
	if n := pushes("later"); n != 1 {
		t.Errorf("%.0f pushes, and only the living one's is due", n)
	}
}

// process returns the id of the process in which an owner waits, from the queue of lock "a".
func process(t *testing.T, c *goredis.Client, owner string) string {
	t.Helper()
	_, rest, _ := strings.Cut(c.Get(t.Context(), "~q:{a}").Val(), "\n"+owner+" ")
	id, _, ok := strings.Cut(rest, " ")
	if !ok {
		t.Fatalf("%s is not in the queue", owner)
	}
	return id
}

// signs reports whether the store has a valid sign of life from a process.
func signs(t *testing.T, c *goredis.Client, process string) bool {
	t.Helper()
	n, err := c.Exists(t.Context(), "~s:{}"+process).Result()
	must(t, err)
	return n == 1
}

func TestWithdrawnWaiterPassesItsGrantOn(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w1"), time.Millisecond)))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w2"), time.Millisecond)))
	must(t, b.Release(ctx, holder)) // w1 is granted the lock
	before := published(t, c)
	must(t, b.Withdraw(ctx, "a", "w1")) // w1 gives up
	if n := published(t, c) - before; n != 1 {
		t.Errorf("%.0f pushes, want one to the next", n)
	}
	acquire(t, b, lease("a", "w2"))
}

// If one lock has waiters or withdrawn owners, an acquire and a release of another lock are still
// cheap. Together their scripts run at most nine commands.
func TestOthersWaitersAreCheap(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	acquire(t, b, lease("busy", "first"))
	must(t, backendtest.Err(b.Wait(ctx, lease("busy", "w"), time.Millisecond)))
	must(t, b.Withdraw(ctx, "busy", "gave up"))
	must(t, b.Release(ctx, acquire(t, b, lease("a", "o")))) // now the server knows the script
	must(t, c.ConfigResetStat(ctx).Err())
	const cycles = 20
	for i := range cycles {
		must(t, b.Release(ctx, acquire(t, b, lease("a", fmt.Sprint("o", i)))))
	}
	if per := scripted(t, c) / cycles; per > 9 {
		t.Errorf("%.1f commands inside the scripts of a cycle", per)
	}
}

// A handoff takes four requests: a refused acquire, entering the queue, the release,
// and the first renewal. The test limits the number of commands in these requests' scripts.
func TestHandoffIsCheap(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "o"))
	const grants = 20
	for i := range grants + 1 {
		if i == 1 { // now the server knows the scripts
			must(t, c.ConfigResetStat(ctx).Err())
		}
		next := lease("a", fmt.Sprint("o", i))
		_, err := b.TryAcquire(ctx, next)
		held(t, err)
		must(t, backendtest.Err(b.Wait(ctx, next, time.Millisecond)))
		must(t, b.Release(ctx, holder))
		holder = granted(t, b, next)
		must(t, b.Renew(ctx, holder))
	}
	if per := scripted(t, c) / grants; per > 31 {
		t.Errorf("%.1f commands inside the scripts of a grant", per)
	}
}

// granted waits until the store has granted r.Owner the lock, and returns r with the token.
func granted(t *testing.T, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		g, err := b.Wait(t.Context(), r, time.Second)
		must(t, err)
		if g.Token == 0 {
			continue
		}
		if left := time.Until(g.Sent.Add(g.For)); left <= 0 || left > kit.FirstSpan {
			t.Errorf("a grant for another %v", left)
		}
		r.Token = g.Token
		return r
	}
	t.Fatalf("%s was not granted %q", r.Owner, r.Name)
	return r
}

// scripted returns the number of commands run by scripts since the statistics were reset.
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

// Ten waiters of one process each send at most one request a second. The process sends only five
// signs of life a second for all of them.
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
	seconds := time.Since(began).Seconds()
	per := (calls() - before - 5*seconds) / seconds / n
	t.Logf("%.2f commands per waiter and second beside the signs of life", per)
	if per > 1.3 {
		t.Errorf("%.2f commands per waiter and second", per)
	}
}

// When the connection for wake-ups breaks, all waiters are woken: a wake-up may have been lost.
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
	eventually(t, "asleep again", b.wakeupsUp)
	h, err := b.Inspect(t.Context(), "a")
	must(t, err)
	must(t, b.Break(t.Context(), "a", h.Token))
	must(t, <-done)
}

func (b *Backend) wakeupsUp() bool {
	link, _ := b.node.Wakeups.Link()
	return link.Up
}

func published(t *testing.T, c *goredis.Client) float64 {
	t.Helper()
	info, err := c.Info(t.Context(), "commandstats").Result()
	must(t, err)
	return commandCalls(info, "publish")
}

// commandCalls returns the number N from "cmdstat_NAME:calls=N,..." for the command called name.
func commandCalls(info, name string) float64 {
	_, rest, _ := strings.Cut(info, "cmdstat_"+name+":calls=")
	number, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.ParseFloat(number, 64)
	return n
}

// A waiter's repeated acquire, which keeps its place in the queue, adds at most 200 bytes to the
// append-only file. Note: rewriting the whole queue would add 0.7 MB a second for 100 hosts.
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

// Signs of life are neither logged nor replicated, because they are of no use after a restart.
func TestSignsAreNotLogged(t *testing.T) {
	s := start(t, &redisserver.Options{AppendFsync: redisserver.FsyncEverySec})
	b, c := connect(t, at(s)), plain(t, s)
	acquire(t, b, lease("a", "first"))
	place(t, b, lease("a", "w"))
	sign := "~s:{}" + process(t, c, "w")
	before, was := written(t, c), c.Get(t.Context(), sign).Val()
	for range 3 {
		eventually(t, "another sign", func() bool {
			now := c.Get(t.Context(), sign).Val()
			again := now != was
			was = now
			return again
		})
	}
	if n := written(t, c) - before; n > 0 {
		t.Errorf("%d bytes written for three signs of life", n)
	}
}

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

// A waiter whose plugin was replaced stays in the queue, and the new plugin receives its wake-up.
func TestPlaceOutlivesThePlugin(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	before := connect(t, at(s))
	must(t, backendtest.Err(before.Wait(ctx, lease("a", "w1"), time.Millisecond)))
	must(t, backendtest.Err(b.Wait(ctx, lease("a", "w2"), time.Millisecond)))
	must(t, before.Close(ctx))
	replaced := process(t, c, "w1")
	after := connect(t, at(s))
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(after.Wait(ctx, lease("a", "w1"), timeout)) }()
	eventually(t, "it listens elsewhere, at the same place", func() bool {
		return process(t, c, "w1") != replaced && strings.HasPrefix(c.Get(ctx, "~q:{a}").Val(), "\nw1 ")
	})
	must(t, b.Release(ctx, holder))
	must(t, <-woken)
	acquire(t, after, lease("a", "w1"))
}
