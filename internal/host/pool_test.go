package host

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/results"
)

// TestPoolOfLeases: of callers that hold one lease each for long, every lease
// that the store forgets is told of and taken again, with a higher token, and all
// are given back in the end. What is held outlives a Forget, and nothing else.
func TestPoolOfLeases(t *testing.T) {
	s := redisServer(t)
	const count = 40
	p := start(t, s, 0, t.TempDir())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range count {
		must(p.Work(Workload{
			Kind: results.OpLock, Prefix: "pool-", First: n, Names: 1, Callers: 1, TTL: ttl, Look: 100 * time.Millisecond,
			Limit: Range{timeout, timeout}, Hold: Range{timeout, timeout},
		}))
	}
	all := func(s results.Seen) bool { return s.Held() == count }
	await(t, p, "it has all", all)
	p.Forget()
	await(t, p, "it still has all", all)
	store := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer store.Close()
	must(store.FlushAll(t.Context()).Err())
	await(t, p, "it has lost all, and has all again", func(s results.Seen) bool { return len(s.Holds) == 2*count && all(s) })
	must(p.Release(t.Context()))
	last := map[int]results.Hold{}
	for _, l := range p.Seen().Holds {
		before, again := last[l.Name]
		if again && (l.Token <= before.Token || before.DoneNs == 0 || before.Cause == "" || l.ReleasedNs == 0) {
			t.Errorf("%+v comes after %+v", l, before)
		}
		last[l.Name] = l
	}
	if p.Forget(); len(last) != count || len(p.Seen().Holds) > 0 {
		t.Errorf("%d names, and afterwards %+v", len(last), p.Seen())
	}
}

func TestUse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	s := redisServer(t)
	host, plugin, err := start(t, s, 0, t.TempDir()).Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if host.Goroutines == 0 || host.Heap == 0 || plugin.Goroutines != 0 {
		t.Errorf("%v; %v", host, plugin)
	}
	for _, u := range []Use{host, plugin} {
		if u.Resident < 1<<20 || u.Descriptors < 3 || u.Threads == 0 {
			t.Errorf("%+v", u)
		}
	}
}
