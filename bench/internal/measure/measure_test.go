package measure

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

func TestMain(m *testing.M) {
	host.Main()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		plugintest.Clean()
		os.Exit(code)
	}))
}

var errDown = errors.New("the store is down")

// fake is a locker that grants locks in memory. Tests set its fields to make it misbehave.
type fake struct {
	mu     sync.Mutex
	held   map[string]bool
	token  uint64
	change chan struct{} // closed and replaced at each release

	twice       bool // grants a lock although it is held
	sameToken   bool
	down        bool
	granted     func(n uint64)
	badRelease  bool
	badRenewals bool
}

func newFake() *fake { return &fake{held: map[string]bool{}, change: make(chan struct{})} }

func (f *fake) Lock(name string, _ time.Duration) (load.Lock, error) { return fakeLock{f, name}, nil }
func (f *fake) Close(context.Context) error                          { return nil }

type fakeLock struct {
	f    *fake
	name string
}

func (l fakeLock) Acquire(ctx context.Context) (load.Lease, error) {
	for {
		l.f.mu.Lock()
		if l.f.down {
			l.f.mu.Unlock()
			return nil, errDown
		}
		if !l.f.held[l.name] || l.f.twice {
			l.f.held[l.name] = true
			if !l.f.sameToken || l.f.token == 0 {
				l.f.token++
			}
			if l.f.granted != nil {
				l.f.granted(l.f.token)
			}
			defer l.f.mu.Unlock()
			return fakeLease{l.f, l.name, l.f.token}, nil
		}
		change := l.f.change
		l.f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-change:
		}
	}
}

type fakeLease struct {
	f     *fake
	name  string
	token uint64
}

func (l fakeLease) Token() uint64 { return l.token }

func (l fakeLease) Renew(context.Context) error {
	if l.f.badRenewals {
		return errDown
	}
	return nil
}

func (l fakeLease) Release(context.Context) error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.f.held[l.name] = false
	close(l.f.change)
	l.f.change = make(chan struct{})
	if l.f.badRelease {
		return errDown
	}
	return nil
}

// measure is the measured time in tests. It suffices for a few cycles on a busy machine.
const measure = 200 * time.Millisecond

func input(f *fake, clients int) Input {
	in := Input{
		Workload: Workload{Clients: clients}, Locker: f, Clock: proc.NewClock(), TTL: time.Second,
		WarmUp: 10 * time.Millisecond, Measure: measure,
	}
	for i := range clients {
		in.Names = append(in.Names, string(rune('a'+i)))
	}
	return in
}

func judge(c results.Cell, in Input) check.Subject {
	k := check.New()
	k.Add(results.Section{CellName: results.CellName{Backend: "fake"}, Kind: results.KindPlugin, Fencing: "strict", Names: in.Names}, c.Attempts)
	return k.Verdict().Subjects[0]
}

func TestAcquire(t *testing.T) {
	in := input(newFake(), 4)
	c, err := runAcquire(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if c.Cycles == 0 || c.Elapsed < in.Measure || c.Values["cycles/s"] != float64(c.Cycles)/c.Elapsed.Seconds() {
		t.Errorf("%d cycles, %v", c.Cycles, c.Values)
	}
	acquires, releases := len(c.Latencies["acquire"]), len(c.Latencies["release"])
	if acquires == 0 || acquires != releases || len(c.Latencies["renew"]) == 0 {
		t.Errorf("%d acquires, %d releases, %d renewals", acquires, releases, len(c.Latencies["renew"]))
	}
	if len(c.Attempts) <= c.Cycles {
		t.Errorf("%d attempts: those of the warm-up are not recorded", len(c.Attempts))
	}
	if v := judge(c, in); v.Overlaps+v.Tokens != 0 || v.Granted != len(c.Attempts) {
		t.Errorf("%+v", v)
	}
	floor, err := runFloor(t.Context(), in, func(ctx context.Context) error { proc.Sleep(ctx, time.Millisecond); return nil })
	for _, c := range []results.Cell{c, floor} { // the rate must not depend on the length of the last cycles
		if err != nil || c.Cycles > in.Clients && c.Elapsed != in.Measure {
			t.Errorf("%d cycles in %v, %v", c.Cycles, c.Elapsed, err)
		}
	}
}

// TestStallsAreMeasured checks that a store gets figures even if it stalls for longer than the
// measured time. The figures must show the stall.
func TestStallsAreMeasured(t *testing.T) {
	const stall = 2 * measure
	f := newFake()
	f.granted = func(n uint64) {
		if n == 1 {
			time.Sleep(stall) // the stall under test
		}
	}
	in := input(f, 1)
	in.WarmUp = 0
	c, err := runAcquire(t.Context(), in)
	if err != nil || c.Cycles != 1 {
		t.Fatalf("%d cycles, %v", c.Cycles, err)
	}
	if got := time.Duration(c.Latencies["acquire"][0]); got < stall || c.Elapsed < got {
		t.Errorf("acquire took %v of %v", got, c.Elapsed)
	}
}

func TestBrokenLockersAreCaught(t *testing.T) {
	twice := newFake()
	twice.twice = true
	in := input(twice, 4)
	c, err := runContend(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if v := judge(c, in); v.Overlaps == 0 {
		t.Errorf("a lock that is granted twice: %+v", v)
	}
	same := newFake()
	same.sameToken = true
	in = input(same, 1)
	if c, err = runAcquire(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if v := judge(c, in); v.Tokens == 0 || v.Overlaps != 0 {
		t.Errorf("a token that repeats: %+v", v)
	}
}

func TestNothingDone(t *testing.T) {
	for name, breakIt := range map[string]func(*fake){
		"down":          func(f *fake) { f.down = true },
		"release fails": func(f *fake) { f.badRelease = true },
		"renewals fail": func(f *fake) { f.badRenewals = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			breakIt(f)
			_, err := runAcquire(t.Context(), input(f, 2))
			if !errors.Is(err, ErrNothingDone) || !errors.Is(err, errDown) {
				t.Errorf("%v: want that nothing was done, and why", err)
			}
		})
	}
}

func TestContend(t *testing.T) {
	in := input(newFake(), 3)
	in.Hold = holdFor
	c, err := runContend(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	grants := grantsIn(c.Attempts, 0, 1<<62)
	for i, a := range grants {
		if held := time.Duration(a.Ended - a.Answered); held < holdFor {
			t.Errorf("grant %d was held for %v", i, held)
		}
		if i > 0 && a.Client == grants[i-1].Client {
			t.Errorf("grants %d and %d are of one caller", i-1, i)
		}
	}
	if v := judge(c, in); v.Overlaps+v.Tokens != 0 {
		t.Errorf("%+v", v)
	}
	if j := c.Values["jain"]; j <= 0.5 || j > 1 {
		t.Errorf("fairness %v", j)
	}
	in.Measure, in.Commands = time.Hour, func(context.Context) (servers.Served, error) { return servers.Served{}, nil }
	if d := idleFor(in); d != in.TTL/2 {
		t.Errorf("a lease of %v that nobody renews is held for %v", in.TTL, d)
	}
}

// TestDoneIn checks that a cycle counts once if the measured time begins or ends during the cycle.
// If no cycle ends in the measured time, the store must look slow, not idle.
func TestDoneIn(t *testing.T) {
	cycle := func(asked, done int64) results.Attempt {
		return results.Attempt{Asked: asked, Done: done, Outcome: results.Granted, End: results.EndReleased}
	}
	failed := results.Attempt{Asked: 50, Answered: 160, Outcome: results.Failed}
	for name, c := range map[string]struct {
		attempts []results.Attempt
		cycles   int
		elapsed  time.Duration
	}{
		"both ends": {[]results.Attempt{cycle(80, 90), cycle(90, 110), cycle(110, 190), cycle(190, 210), failed}, 2, 100},
		"a wave":    {[]results.Attempt{cycle(80, 90), cycle(90, 260), cycle(91, 250), cycle(260, 500)}, 2, 160},
		"one only":  {[]results.Attempt{cycle(80, 90), cycle(110, 150)}, 1, 100},
		"nothing":   {[]results.Attempt{failed}, 0, 100},
	} {
		if n, elapsed := doneIn(c.attempts, 100, 200, 2); n != c.cycles || elapsed != c.elapsed {
			t.Errorf("%s: %d cycles in %v, want %d in %v", name, n, elapsed, c.cycles, c.elapsed)
		}
	}
}

func TestWorkloads(t *testing.T) {
	got := throughput.Workloads(Overrides{Hosts: []int{1, 4}, Clients: []int{2}, Keys: []int{1, 5}})
	want := []Workload{{Clients: 2, Keys: 1}, {Clients: 2, Keys: 5}, {Hosts: 4, Clients: 2, Keys: 1}, {Hosts: 4, Clients: 2, Keys: 5}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	got = contend.Workloads(Overrides{Clients: []int{1, 5}, Quick: true})
	want = nil
	for _, s := range [][2]int{{0, 5}, {2, 1}, {2, 5}, {8, 1}, {8, 5}} {
		want = append(want, Workload{Hosts: s[0], Clients: s[1], Hold: holdFor})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestHandoffsAndFairness(t *testing.T) {
	g := func(client int32, asked, answered, ended int64) results.Attempt {
		return results.Attempt{Client: client, Asked: asked, Answered: answered, Ended: ended, Done: ended + 1, Outcome: results.Granted, End: results.EndReleased}
	}
	all := []results.Attempt{g(1, 0, 30, 40), g(0, 0, 10, 20), g(0, 50, 60, 70), {Outcome: results.Refused, Answered: 65}}
	grants := grantsIn(all, 0, 100)
	if got := handoffs(grants); len(got) != 2 || got[0][1]-got[0][0] != 10 || got[1][1]-got[1][0] != 20 {
		t.Errorf("handoffs %v, want 10 and 20", got)
	}
	if got := waits(grants); len(got) != 3 || got[0] != 10 || got[1] != 30 || got[2] != 10 {
		t.Errorf("waits %v", got)
	}
	starved := []results.Attempt{{Asked: 5, Answered: 103, Outcome: results.Cancelled}, {Asked: 2, Answered: 99, Outcome: results.Failed}}
	if got, more := longestWait(all[:3], 0, 100), longestWait(append(starved, all...), 0, 100); got != 30 || more != 95 {
		t.Errorf("longest wait %d, want 30; with a starved waiter %d, want 95", got, more)
	}
	if got := grantsIn(all, 15, 69); len(got) != 1 {
		t.Errorf("%d grants in the window, want 1", len(got))
	}
	if got := jain(grants[:2], 2); got != 1 {
		t.Errorf("one each: %v", got)
	}
	if got := jain([]results.Attempt{grants[0], grants[0]}, 4); got != 0.25 {
		t.Errorf("all to one of four: %v", got)
	}
}

// TestOverloadIsRefused starts more cycles per second than the store can do. Some cycles must then
// start late, some must be dropped, and the figures must be marked as refused.
func TestOverloadIsRefused(t *testing.T) {
	f := newFake()
	f.granted = func(uint64) { time.Sleep(20 * time.Millisecond) } // the time that each grant takes
	in := input(f, 1)
	in.Measure, in.Rate = 200*time.Millisecond, 2000
	c, err := runAcquire(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if c.Values["drops"] == 0 || c.Values["open-refused"] != 1 {
		t.Errorf("%v", c.Values)
	}
	if worst := time.Duration(c.Values["max-ns/open-acquire"]); worst < 100*time.Millisecond {
		t.Errorf("the longest took %v since it was due", worst)
	}
}

// TestDrops checks that a cycle of the open loop counts as a drop if it fails or never starts.
func TestDrops(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	down := newFake()
	down.down = true
	for ctx, f := range map[context.Context]*fake{t.Context(): down, ended: newFake()} {
		in := input(f, 1)
		cs, _ := callers(in)
		cell := results.Cell{Latencies: map[string][]int64{}, Values: map[string]float64{}}
		if runOpen(ctx, in, cs, 1000, &cell); cell.Values["drops"] < 10 {
			t.Errorf("the store is down: %t, %v", f.down, cell.Values)
		}
	}
}

func TestKeptUp(t *testing.T) {
	fast, late := []int64{100, 110, 120}, []int64{90, 90, 90}
	for name, tt := range map[string]struct {
		acquires, lags []int64
		drops          int
		want           bool
	}{
		"well":             {fast, []int64{10, 10, 10}, 0, true},
		"dropped":          {fast, []int64{10, 10, 10}, 1, false},
		"late":             {fast, late, 0, false},
		"late in the tail": {[]int64{100, 110, 120}, []int64{1, 1, 90}, 0, false},
		"nothing":          {nil, nil, 0, false},
	} {
		if got := keptUp(tt.acquires, tt.lags, tt.drops); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
