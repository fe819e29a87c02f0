package drivertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// bug describes a bug that a backend or core may have, and names the cases that must catch it. A
// field that is zero stands for correct behaviour.
type bug struct {
	name string
	// plant returns, for one fixture, a function that plants the bug in a connection.
	plant func(*fixture) func(*calls)
	// hook plants the bug in the leases that core returns to the cases.
	hook hook

	// The following four fields are not bugs, but properties of a correct backend.
	fencing        driver.Fencing    // "" means strict
	noOrder        bool              // the properties do not promise FIFO
	diesWithPlugin bool              // the store ends with its plugin
	lacks          driver.Capability // a capability that is not declared

	silentDeath      bool // no watcher gets a notice of the plugin's death
	pluginTakesLocks bool // the plugin's death frees its leases
	neverReplaced    bool // a frozen plugin is not replaced
	pluginRenews     bool // the plugin of a frozen host renews its leases
	abandons         bool // a dead host's locks are left to expire
	forgetsDelay     bool // a dead host's locks are not released after the delay, but expire
	hidesRefusal     bool // the backend reports a refusal as an outage
	neverBack        bool // no client reaches the server after it was stopped and started
	sameNamespace    bool // two namespaces are in fact one

	caught []string
}

// The function each returns a bug.plant that plants the bug in each connection separately.
func each(plant func(*calls)) func(*fixture) func(*calls) {
	return func(*fixture) func(*calls) { return plant }
}

func bugs() []bug {
	return slices.Concat(grantBugs(), tokenBugs(), leaseBugs(), queueBugs(), requestBugs(), coreBugs(), processBugs())
}

// judgeCase runs one case in a fixture with bug b, in a separate synctest
// bubble, where waiting takes no real time.
func judgeCase(t *testing.T, c Case, b bug) CaseResult {
	t.Helper()
	var r CaseResult
	synctest.Test(t, func(t *testing.T) {
		s := makeSuite(func(t T) *Harness { return newFixture(t, b).harness() })
		s.props = fixtureProperties(b)
		r = s.run(t.Context(), c)
		time.Sleep(time.Hour) // until all goroutines that a bug has left behind have ended
	})
	return r
}

func caseNamed(t *testing.T, name string) Case {
	t.Helper()
	all := Cases()
	i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return all[i]
}

// TestHintsBeforeSleep covers a Wait that enters the queue but returns early, for example because
// the host is still connecting. Cases must not take that return for a wake-up.
func TestHintsBeforeSleep(t *testing.T) {
	hints := bug{plant: func(*fixture) func(*calls) {
		var (
			met sync.Map // owners that have waited
			n   atomic.Int64
		)
		return func(c *calls) {
			inner := c.wait
			c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
				if _, again := met.LoadOrStore(r.Owner, true); !again {
					limit = 5 * time.Millisecond / time.Duration(n.Add(1)) // the last Wait returns first
				}
				return inner(ctx, r, limit)
			}
		}
	}}
	for _, name := range []string{
		"K5 a release wakes one waiter", "K5 waiters of different hosts are granted in their order", "K5 a waiter that withdraws passes its turn on",
	} {
		if r := judgeCase(t, caseNamed(t, name), hints); r.Outcome != Pass {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestDistantStore covers round trips of 200 ms and first spans of 2 s, which the contract allows.
func TestDistantStore(t *testing.T) {
	const trip = 200 * time.Millisecond
	far := bug{plant: each(func(c *calls) {
		inner := *c
		onInspect(c, func(h driver.Holder) driver.Holder { time.Sleep(trip); return h })
		onTTL(c, func(ttl time.Duration) time.Duration { time.Sleep(trip); return ttl })
		c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
			g, err := inner.wait(ctx, r, limit)
			if g.Token != 0 {
				r.Token, r.TTL = g.Token, 2*time.Second
				g.Sent, g.For = time.Now(), r.TTL
				err = inner.renew(ctx, r)
			}
			return g, err
		}
	})}
	for _, name := range []string{
		"K4 a wake-up may carry a grant, which ends for its waiter first", "K6 names are kept as they are and never collide", "K6 names of two namespaces never collide",
	} {
		if r := judgeCase(t, caseNamed(t, name), far); r.Outcome != Pass {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestEntryForAllNames checks that a backend may keep one entry that all names share.
func TestEntryForAllNames(t *testing.T) {
	once := bug{plant: keeps(func(string) string { return "entry" })}
	for _, name := range []string{"K2 a refused try leaves nothing behind", "K3 acquires cancelled at random leave nothing and block no client"} {
		if r := judgeCase(t, caseNamed(t, name), once); r.Outcome != Pass {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestPlantedBugsAreCaught(t *testing.T) {
	for _, b := range bugs() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if len(b.caught) == 0 {
				t.Errorf("no case is named that catches it")
			}
			for _, name := range b.caught {
				c := caseNamed(t, name)
				r := judgeCase(t, c, b)
				if r.Outcome != Fail {
					t.Errorf("%q does not catch it: %v %s", name, r.Outcome, r.Reason)
					continue
				}
				if !strings.Contains(r.Log, c.Explain) {
					t.Errorf("the failure of %q does not say what the rule demands:\n%s", name, r.Log)
				}
				first, _, _ := strings.Cut(r.Log, "\n")
				t.Logf("%s -> %s", name, first)
			}
		})
	}
}

func TestCasesPassWithoutBug(t *testing.T) {
	for _, honest := range []bug{
		{name: "survives"},
		{name: "dies with its plugin", diesWithPlugin: true},
		{name: "is no observer", lacks: driver.CapObserver},
		{name: "has no queue", lacks: driver.CapWaiter},
		{name: "has no order", plant: lastFirst, noOrder: true},
		{name: "tokens follow its data", plant: beginsAgain(false), fencing: driver.FencingDurable, noOrder: true},
	} {
		for _, c := range Cases() {
			t.Run(honest.name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				r := judgeCase(t, c, honest)
				if r.Outcome == NA && (strings.Contains(r.Reason, "survive") || honest.noOrder || honest.lacks == driver.CapWaiter) {
					return
				}
				if r.Outcome != Pass {
					t.Errorf("%v %s\n%s", r.Outcome, r.Reason, r.Log)
				}
			})
		}
	}
}

func TestEveryCaseCanFail(t *testing.T) {
	caught := map[string]string{}
	for _, b := range bugs() {
		for _, name := range b.caught {
			caught[name] = b.name
		}
	}
	for _, c := range Cases() {
		if caught[c.Name] == "" {
			t.Errorf("no planted bug makes %q fail", c.Name)
		}
	}
}

func TestHangingCaseIsReported(t *testing.T) {
	hangs := Case{Rule: "K1", Name: "K1 hangs", Explain: "it must not", Limit: time.Second}
	hangs.Run = func(t T, h *Harness) {
		a := h.attempt(h.Open(t), "jobs", time.Second).must(t)
		<-a.b.(*process).w.over
	}
	r := judgeCase(t, hangs, bug{})
	for _, want := range []string{"hangs", "the last step was: TryAcquire", "drivertest.TestHangingCaseIsReported.func1", "stacks of plugin 10"} {
		if r.Outcome != Fail || !strings.Contains(r.Log, want) {
			t.Errorf("a case that hangs is %v, and %q is not said:\n%s", r.Outcome, want, r.Log)
		}
	}
	if strings.Contains(r.Log, "testing.tRunner") || strings.Count(r.Log, "\n") > 60 {
		t.Errorf("a case that hangs shows what is not its own:\n%s", r.Log)
	}
}

// TestStoppedServerIsStartedAgain checks that the suite starts a server that a case left stopped.
func TestStoppedServerIsStartedAgain(t *testing.T) {
	starts := 0
	b := bug{plant: func(w *fixture) func(*calls) {
		w.start = func(bool) { starts++ }
		return func(*calls) {}
	}}
	c := Case{Name: "K8 ends early", Run: func(t T, h *Harness) { h.Store.Stop(t); t.Fatalf("too early") }}
	if r := judgeCase(t, c, b); r.Outcome != Fail || starts != 1 {
		t.Errorf("%v; the server was started %d times:\n%s", r.Outcome, starts, r.Log)
	}
}
