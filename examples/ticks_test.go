package examples_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

const (
	tickForm = "2006-01-02T15:04:05.000Z"
	tickLate = time.Second // the longest delay of a run, for ticks that are a second apart
	// enough is the time that a process needs to run a tick. A process that has this time within
	// tickLate after a tick must not miss the tick. The time is long, because the machine may be busy.
	enough = 600 * time.Millisecond
	// If this test pauses for longer than stall between two requests, the machine has stalled.
	stall     = 100 * time.Millisecond
	storeAway = 5 * time.Second
	// back is the longest pause of a process between two attempts to reach the store.
	back = 600 * time.Millisecond
	// jobTTL is the TTL of the job's lock. A stopped or killed process may keep the lock from the
	// other processes for that long.
	jobTTL = 2 * time.Second
)

// An away is a period in which a process could not run a tick. The process was stopped
// or dead, the store was unreachable, or another process kept the job's lock.
type away struct {
	label    string
	from, to time.Time
	killed   bool
	token    uint64
}

// covers reports whether the period a overlaps with the time in which the tick's run may begin.
func (a away) covers(tick time.Time) bool {
	return a.from.Before(tick.Add(tickLate)) && a.to.After(tick)
}

// ticking has three schedulers and a proxy to their store.
type ticking struct {
	system
	proxy *inject.Proxy

	server  driver.Config // the server behind the proxy
	expires time.Duration // the longest time by which a lease may outlive its TTL

	mu    sync.Mutex
	all   []*process
	aways [][]away // by the scheduler's number
	// The store's answers. Only one goroutine uses these fields:
	holds  []away            // periods in which the job's lock was held
	taken  map[string]string // the host that took each tick, by the tick's time
	stalls []away            // periods in which this machine was too busy to ask in time
}

// The function behind starts a backend's server, and a proxy through which schedulers connect.
func behind(t *testing.T, backend string) *ticking {
	t.Helper()
	var at, config string
	switch backend {
	case "redis":
		s, err := redisserver.Start(t.Context(), nil)
		servers.Keep(t, backend, s, err)
		at, config = s.Addr(), s.Addr()
	case "mysql":
		s, err := mysqlserver.Start(t.Context(), nil)
		servers.Keep(t, backend, s, err)
		at, config = s.Addr(), mysqlserver.Address(s)
	case "postgres":
		s, err := postgresserver.Start(t.Context(), nil)
		servers.Keep(t, backend, s, err)
		at, config = s.Addr(), postgresserver.Address(s)
	case "etcd":
		s, err := etcdserver.Start(t.Context(), nil)
		servers.Keep(t, backend, s, err)
		at, config = s.Addr(), s.Addr()
	}
	proxy, err := inject.NewProxy(at)
	servers.Keep(t, backend, proxy, err)
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("address="+strings.Replace(config, at, proxy.Addr(), 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &ticking{system: system{backend, []string{"--backend", backend, "--config", file, "--plugin-dir", plugins}}, proxy: proxy}
	w.server, w.expires = driver.Config{"address": config}, 200*time.Millisecond
	if backend == "etcd" {
		w.expires = time.Second
	}
	w.aways, w.taken = make([][]away, 3), map[string]string{}
	return w
}

func (w *ticking) launch(t *testing.T, label string) *process {
	p := w.run(t, "scheduler", "--every", "1s", "--ttl", jobTTL.String(), "--takes", "20ms", "--label", label)
	w.mu.Lock()
	w.all = append(w.all, p)
	w.mu.Unlock()
	p.await(t, 0, " up")
	return p
}

func (w *ticking) note(place int, a away) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aways[place] = append(w.aways[place], a)
}

// harm stops or kills one scheduler several times until the time in end. The parameter place is
// the scheduler's number. harm replaces a killed process, and returns the last process.
func (w *ticking) harm(t *testing.T, place int, p *process, end time.Time) *process {
	draw := rand.New(rand.NewPCG(1, uint64(place)))
	span := func(least, most time.Duration) time.Duration {
		return least + time.Duration(draw.Int64N(int64(most-least)))
	}
	label := func(n int) string { return fmt.Sprintf("place-%d-%d", place, n) }
	for n := 0; ; {
		time.Sleep(span(0, 4*time.Second))
		if !time.Now().Before(end) {
			return p
		}
		a := away{label: label(n), from: time.Now()}
		if draw.IntN(5) > 0 {
			p.signal(syscall.SIGSTOP)
			time.Sleep(span(100*time.Millisecond, 3*time.Second))
			p.signal(syscall.SIGCONT)
		} else {
			a.killed = true
			p.kill()
			n++
			p = w.launch(t, label(n))
		}
		a.to = time.Now()
		w.note(place, a)
	}
}

// TestTicks stops and kills three processes and makes their store unreachable. No tick may run
// twice, or be missed if a process could run it. Each miss must be reported, except after a kill.
func TestTicks(t *testing.T) {
	backends, length := []string{"redis"}, 12*time.Second
	if long {
		backends, length = []string{"redis", "mysql", "postgres", "etcd"}, 10*time.Minute
	}
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			w := behind(t, backend)
			var first []*process
			for place := range w.aways {
				first = append(first, w.launch(t, fmt.Sprintf("place-%d-0", place)))
			}
			from, end := time.Now(), time.Now().Add(length)
			watched := w.watch(t)
			last := make([]*process, len(first))
			var harm sync.WaitGroup
			for place, p := range first {
				harm.Go(func() { last[place] = w.harm(t, place, p, end) })
			}
			for next := from.Add(3 * time.Second); next.Add(storeAway).Before(end); next = next.Add(40 * time.Second) {
				time.Sleep(time.Until(next))
				w.loseStore(t)
			}
			harm.Wait()
			time.Sleep(4 * time.Second) // so that all ticks are reported
			for _, p := range last {
				p.terminate(t)
			}
			watched()
			w.judge(t, from, end)
		})
	}
}

func (w *ticking) loseStore(t *testing.T) {
	from := time.Now()
	if err := w.proxy.Refuse(); err != nil {
		t.Error(err)
	}
	time.Sleep(storeAway)
	if err := w.proxy.Heal(); err != nil {
		t.Error(err)
	}
	for place := range w.aways {
		w.note(place, away{from: from, to: time.Now().Add(back)})
	}
}

// watch asks the store directly, not through the proxy, for the holders of the job's lock and of
// each tick's lock. It notes the replies until the returned function end is called.
func (w *ticking) watch(t *testing.T) (end func()) {
	t.Helper()
	b, err := plugin.Open(t.Context(), w.backend, &plugin.Options{Path: filepath.Join(plugins, "lockplugin-"+w.backend), Config: w.server})
	if err != nil {
		t.Fatal(err)
	}
	c := core.New(b, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	next := time.Now().Truncate(time.Second)
	looking.Go(func() {
		looks := time.NewTicker(20 * time.Millisecond)
		defer looks.Stop()
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			if holder, err := c.Inspect(ctx, "refresh"); err == nil && holder.Held() {
				w.held(holder, time.Now())
			}
			next = w.ask(ctx, c, next, time.Now().Add(-storeAway-3*time.Second)) // the schedulers have reported these ticks
			select {
			case <-looks.C:
			case <-ctx.Done():
			}
			if now := time.Now(); now.Sub(last) > stall {
				w.stalls = append(w.stalls, away{from: last, to: now})
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
		w.ask(context.Background(), c, next, time.Now())
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// ask notes which host took each tick. It begins with the tick at the time next, and stops before
// the time last, or if the store fails. It returns the tick with which the next call should begin.
func (w *ticking) ask(ctx context.Context, c *core.Client, next, last time.Time) time.Time {
	for ; next.Before(last); next = next.Add(time.Second) {
		holder, err := c.Inspect(ctx, "refresh@"+next.UTC().Format(time.RFC3339Nano))
		if err != nil {
			break
		}
		w.taken[next.UTC().Format(tickForm)] = holder.Label
	}
	return next
}

func (w *ticking) held(h core.Holder, now time.Time) {
	if last := len(w.holds) - 1; last >= 0 && w.holds[last].token == h.Token {
		w.holds[last].to = now
		return
	}
	w.holds = append(w.holds, away{label: h.Label, token: h.Token, from: now, to: now})
}

// blocked returns the periods in which a process held the job's lock and was stopped or killed. The
// test fails if the process kept the lock for more than jobTTL plus w.expires after the stop or
// kill.
func (w *ticking) blocked(t *testing.T) (all []away) {
	for _, a := range slices.Concat(w.aways...) {
		for _, h := range w.holds {
			if h.label != a.label || !h.from.Before(a.to) || !h.to.After(a.from) {
				continue
			}
			all = append(all, h)
			from := h.from
			if a.from.After(from) {
				from = a.from
			}
			if d := h.to.Sub(from); d > jobTTL+w.expires {
				t.Errorf("%s had the job's lock for %v after it was stopped or killed", h.label, d)
			}
		}
	}
	return all
}

// killed reports whether the process that took a tick was killed before it could run the job. If no
// process took the tick, it reports whether every process was killed before it reported the miss.
func (w *ticking) killed(at time.Time) bool {
	if label := w.taken[at.UTC().Format(tickForm)]; label != "" {
		return slices.ContainsFunc(slices.Concat(w.aways...), func(a away) bool {
			return a.killed && a.label == label && a.covers(at)
		})
	}
	tells := at.Add(tickLate + storeAway + 3*time.Second)
	for _, aways := range w.aways {
		if !slices.ContainsFunc(aways, func(a away) bool { return a.killed && a.from.Before(tells) && a.to.After(at) }) {
			return false
		}
	}
	return true
}

func (w *ticking) judge(t *testing.T, from, end time.Time) {
	var lines []string
	for _, p := range w.all {
		lines = append(lines, p.output()...)
	}
	told := map[string][]string{} // the reports of each tick
	for _, line := range lines {
		if at, rest, _ := strings.Cut(line, " "); strings.Contains(rest, " missed, ") || strings.Contains(rest, " unknown, ") {
			told[at] = append(told[at], rest)
		}
	}
	run := starts(lines)
	counts, blocked := map[string]int{}, w.blocked(t)
	for at := from.Truncate(time.Second).Add(time.Second); at.Before(end); at = at.Add(time.Second) {
		name := at.UTC().Format(tickForm)
		said, n := told[name], run[name]
		switch {
		case n > 1:
			t.Errorf("the tick of %s was run %d times", name, n)
		case n == 1 && slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, " missed, ") }):
			t.Errorf("the tick of %s was run, and told to be missed: %q", name, said)
		case n == 1:
			counts["run"]++
		case len(said) == 0 && !w.killed(at):
			t.Errorf("the tick of %s was missed, and no process has told of it: %q took it", name, w.taken[name])
		case len(said) == 0:
			counts["untold, with who had taken it or could have told killed"]++
		case len(said) > 1 && strings.Contains(said[0], " missed, "):
			t.Errorf("the tick of %s was told to be missed %d times: %q", name, len(said), said)
		case !w.able(at, nil):
			counts["missed, every process away"]++
		case !w.able(at, blocked):
			counts["missed, a process that was stopped or killed had the job's lock"]++
		case !w.able(at, slices.Concat(blocked, w.stalls)):
			counts["missed, this machine stalled"]++
		default:
			t.Errorf("the tick of %s was missed although a process was there: %q", name, said)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", why, counts[why])
	}
	if counts["run"] == 0 {
		t.Error("no tick was run")
	}
}

// able reports whether some process had enough time to run the tick. In the
// periods listed in besides, no process counts as able to run the tick.
func (w *ticking) able(at time.Time, besides []away) bool {
	return slices.ContainsFunc(w.aways, func(aways []away) bool {
		there := at
		for _, a := range slices.SortedFunc(slices.Values(slices.Concat(aways, besides)), func(a, b away) int { return a.from.Compare(b.from) }) {
			if a.covers(at) {
				if a.from.Sub(there) >= enough {
					return true
				}
				if a.to.After(there) {
					there = a.to
				}
			}
		}
		return at.Add(tickLate).Sub(there) >= enough
	})
}
