package measure

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

func TestTTLsOf(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for want, p := range map[string]driver.Properties{
		"[30ms 50ms 100ms 200ms 500ms 1s 2s]": {TTLMin: 30 * ms, TTLStep: ms, TTLMax: time.Hour},
		"[2s]":                                {TTLMin: 2 * s, TTLStep: s, TTLMax: time.Hour},
		"[]":                                  {TTLMin: 3 * s, TTLStep: s, TTLMax: time.Hour},
	} {
		if got := fmt.Sprint(ttlsOf(p, 2*s)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestStalls(t *testing.T) {
	for want, lost := range map[int][]int64{0: nil, 1: {30, 10, 20}, 2: {50, 10, 20}, 3: {100, 10, 50}} {
		if got := stalls(lost, 20); got != want {
			t.Errorf("%v: %d stalls, want %d", lost, got, want)
		}
	}
}

func TestTTL(t *testing.T) {
	in := takeoverInput(t, redisServer(t), "")
	in.For, in.TTL, in.Clients = time.Second, 500*time.Millisecond, 20
	c, err := shortTTL.Run(t.Context(), in)
	if err != nil || len(c.Modes) != 6 {
		t.Fatalf("%d TTLs, %v", len(c.Modes), err)
	}
	checker := check.New()
	for _, m := range c.Modes {
		checker.Add(results.Section{CellName: results.CellName{Backend: "redis"}, Kind: results.KindPlugin, Fencing: "durable", Names: m.Names}, m.Attempts)
		lost := m.Values["lost-leases"]
		if m.Values["losing-stalls"] > lost || lost == 0 && len(c.Findings) == 0 && (m.Cycles == 0 || len(m.Latencies["replaced"]) == 0) {
			t.Errorf("%s: %d renewals, %v, replaced after %v", m.Mode, m.Cycles, m.Values, m.Latencies["replaced"])
		}
		for _, a := range m.Attempts {
			if a.Outcome == results.Granted && a.End == results.EndOpen {
				t.Errorf("%s: nothing is known about the end of %+v", m.Mode, a)
			}
		}
	}
	if v := checker.Verdict(); v.Unsafe() > 0 || v.Granted() < 6*fewLeases {
		t.Errorf("%+v", v)
	}
}

// endingLease is a lease that is lost when the test closes its channel.
type endingLease struct {
	load.Lease
	done chan struct{}
}

func (l endingLease) Done() <-chan struct{} { return l.done }
func (l endingLease) Deadline() time.Time   { return time.Now().Add(time.Hour) }

// endingLock grants leases. It loses each new lease at once while its loses field is above 0.
type endingLock struct {
	token uint64
	loses int
	last  chan struct{} // closed when the last lease is granted
}

func (l *endingLock) Acquire(context.Context) (load.Lease, error) {
	l.token++
	lease := endingLease{fakeLease{f: newFake(), name: "a", token: l.token}, make(chan struct{})}
	if l.loses--; l.loses >= 0 {
		close(lease.done)
	} else {
		close(l.last)
	}
	return lease, nil
}

func TestFalseLosses(t *testing.T) {
	lock := &endingLock{loses: 3, last: make(chan struct{})}
	run := &ttlCell{in: Input{Clock: proc.NewClock()}}
	of := &tried{ttl: time.Second, callers: []*load.Caller{{Clock: run.in.Clock, Lock: lock}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run.count(true)
	var held sync.WaitGroup
	lease, _ := of.callers[0].Acquire(ctx)
	held.Go(func() { run.keep(ctx, of, of.callers[0], lease) })
	<-lock.last
	cancel()
	held.Wait()
	m := run.measured(of, 0)
	if m.Values["lost-leases"] != 3 || m.Values["losing-stalls"] != 1 || len(m.Attempts) != 4 {
		t.Errorf("%v, %d attempts", m.Values, len(m.Attempts))
	}
	for i, a := range m.Attempts {
		if lost := a.End == results.EndLost; lost != (i < 3) || a.Ended < a.Answered {
			t.Errorf("attempt %d: %+v", i, a)
		}
	}
}
