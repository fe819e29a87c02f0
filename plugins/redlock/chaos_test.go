package redlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockbench/lockbench/core/driver"
)

// grantsVar is the environment variable with TestNodesComeAndGo's number of grants (default 3,000).
const grantsVar = "LOCKBENCH_REDLOCK_GRANTS"

type event struct {
	acquire bool
	token   uint64 // the token of the grant, or of the released lease
}

// lockModel describes a lock with tokens: it has one holder at a time, and its tokens rise.
var lockModel = porcupine.Model{
	Init: func() any { return holding{} },
	Step: func(state, input, _ any) (bool, any) {
		s, e := state.(holding), input.(event)
		if e.acquire {
			return !s.held && e.token > s.token, holding{true, e.token}
		}
		return s.held && s.token == e.token, holding{false, e.token}
	},
	Equal:             func(a, b any) bool { return a.(holding) == b.(holding) },
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

type holding struct {
	held  bool
	token uint64
}

// history collects the events of one lock, and compares each grant with the previous grant.
type history struct {
	mu     sync.Mutex
	began  time.Time
	events []porcupine.Operation
	holder string
	until  time.Time // when the holder's lease is over
	token  uint64
}

func (h *history) add(client int, e event, call, back time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, porcupine.Operation{
		ClientId: client, Input: e, Call: int64(call.Sub(h.began)), Return: int64(back.Sub(h.began)),
	})
}

func (h *history) granted(t *testing.T, r driver.Request, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder != "" && time.Now().Before(h.until) {
		t.Errorf("%q: %s was granted while %s holds it for another %v", r.Name, r.Owner, h.holder, time.Until(h.until))
	}
	if r.Token <= h.token {
		t.Errorf("%q: token %d is not above %d", r.Name, r.Token, h.token)
	}
	h.holder, h.until, h.token = r.Owner, until, r.Token
}

// ending records that the lease of r is over. Call it before the release is sent.
func (h *history) ending(r driver.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == r.Owner {
		h.holder = ""
	}
}

// TestNodesComeAndGo acquires locks from several hosts, while nodes are stopped, restarted without
// data and frozen, one node at a time. No two leases of one lock may overlap, and tokens must rise.
func TestNodesComeAndGo(t *testing.T) {
	want, names, workers := int64(3000), 4, 8
	if text := os.Getenv(grantsVar); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		must(t, err)
		want = n
	}
	const ttl = time.Second
	nodes, b := cluster(t, driver.Config{"max_ttl": "1s"})
	hosts := []*Backend{b, connect(t, configOf(nodes, driver.Config{"max_ttl": "1s"}))}
	histories := make([]*history, names)
	for i := range histories {
		histories[i] = &history{began: time.Now()}
	}
	var grants, refusals, rounds atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work, chaos sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			host := hosts[w%len(hosts)]
			for i := 0; grants.Load() < want && ctx.Err() == nil && !t.Failed(); i++ {
				h := histories[(w+i)%names]
				r := driver.Request{Name: fmt.Sprint("lock", (w+i)%names), Owner: fmt.Sprintf("w%d-%d", w, i), TTL: ttl}
				if cycleOnce(t, host, h, w, r) {
					grants.Add(1)
				} else {
					refusals.Add(1)
				}
			}
			cancel()
		})
	}
	chaos.Go(func() {
		for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
			s := nodes[i%len(nodes)]
			if i%3 == 2 {
				noError(t, s.Freeze())
				pause(ctx, 150*time.Millisecond)
				noError(t, s.Resume())
			} else {
				noError(t, s.Stop())
				pause(ctx, 150*time.Millisecond)
				noError(t, s.Start(t.Context(), false))
			}
			for _, host := range hosts {
				for n := nodeAt(host, s); !n.votes() && ctx.Err() == nil; {
					pause(ctx, 10*time.Millisecond)
				}
			}
			rounds.Add(1)
		}
	})
	work.Wait()
	chaos.Wait()
	t.Logf("%d grants, %d refusals, %d faults", grants.Load(), refusals.Load(), rounds.Load())
	if rounds.Load() == 0 {
		t.Error("no node came and went")
	}
	for i, h := range histories {
		if res := porcupine.CheckOperationsTimeout(lockModel, h.events, time.Minute); res != porcupine.Ok {
			t.Errorf("history of lock%d with %d operations is %s", i, len(h.events), res)
		}
	}
}

// cycleOnce makes one attempt to acquire r.Name, and releases the lock if it was granted.
func cycleOnce(t *testing.T, b *Backend, h *history, client int, r driver.Request) bool {
	ctx := context.WithoutCancel(t.Context())
	sent := time.Now()
	token, err := b.TryAcquire(ctx, r)
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
		if errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrNotSent) {
			retry(t, func() error { return b.Withdraw(ctx, r.Name, r.Owner) })
		}
		return false
	}
	got := time.Now()
	r.Token = token
	until := sent.Add(r.TTL - r.TTL/100 - 2*time.Millisecond)
	if got.After(until) {
		return false // the grant came too late, so the owner does not use it
	}
	h.granted(t, r, until)
	h.add(client, event{acquire: true, token: token}, sent, got)
	h.ending(r)
	freeing := time.Now()
	retry(t, func() error {
		err := b.Release(ctx, r)
		if errors.Is(err, driver.ErrNotHeld) {
			return nil // the nodes have lost the lease, or it has expired
		}
		return err
	})
	h.add(client, event{token: token}, freeing, time.Now())
	return true
}

// retry calls f until it succeeds, for at most 3 s. After 3 s, all leases have expired.
func retry(t *testing.T, f func() error) {
	for end := time.Now().Add(3 * time.Second); ; pause(t.Context(), 5*time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(end) {
			return
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// noError is like func must, but any goroutine of a test may call it.
func noError(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}
