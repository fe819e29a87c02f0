package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

var errDown = fmt.Errorf("%w: connection refused", ErrUnavailable)

func TestL2DeadlineIsCountedFromSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.after = func(context.Context, string, driver.Request) error {
			time.Sleep(400 * time.Millisecond)
			return nil
		}
		c, _ := open(t, f)
		sent := time.Now()
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 10 * time.Second}))
		want := sent.Add(10*time.Second - 102*time.Millisecond)
		if got := lease.Deadline(); !got.Equal(want) {
			t.Errorf("deadline %v after sending, want %v", got.Sub(sent), want.Sub(sent))
		}
	})
}

func TestL2LateGrantIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.after = func(_ context.Context, op string, _ driver.Request) error {
			if op == "acquire" {
				time.Sleep(time.Second)
			}
			return nil
		}
		c, _ := open(t, f)
		_, err := lockOf(t, c, "a", &LockOptions{TTL: time.Second}).TryAcquire(t.Context())
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("a grant that took its whole TTL: %v", err)
		}
		if f.count("withdraw") == 0 {
			t.Error("the late grant was not withdrawn")
		}
	})
}

func TestL3DoneBeforeDeadlineWithHungBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		release := make(chan struct{})
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" {
				<-release // hangs even after its ctx has ended
			}
			time.Sleep(300 * time.Millisecond) // the deadline counts from when the request was sent
			return nil
		}
		c, rec := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 3 * time.Second}))
		deadline := lease.Deadline()
		<-lease.Done()
		if now := time.Now(); now.After(deadline) {
			t.Errorf("Done closed %v after the deadline", now.Sub(deadline))
		}
		if lease.Valid() || !errors.Is(lease.Err(), ErrUnreachable) || lease.State() != Lost {
			t.Errorf("valid %v, state %v, cause %v", lease.Valid(), lease.State(), lease.Err())
		}
		synctest.Wait()
		rec.want(t, "a", EventAcquired, EventLost)
		close(release)
	})
}

func TestL4SuspectThenHeldThenLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var down atomic.Bool
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		c, rec := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 9 * time.Second}))
		token := lease.Token()
		down.Store(true)
		time.Sleep(4 * time.Second)
		if lease.State() != Suspect || !lease.Valid() {
			t.Fatalf("state %v, valid %v while renewals fail", lease.State(), lease.Valid())
		}
		down.Store(false)
		time.Sleep(time.Second)
		if lease.State() != Held || lease.Token() != token {
			t.Fatalf("state %v, token %d -> %d after renewals work again", lease.State(), token, lease.Token())
		}
		down.Store(true)
		<-lease.Done()
		if err := lease.Err(); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("cause %v", err)
		}
		synctest.Wait()
		rec.want(t, "a", EventAcquired, EventSuspect, EventSuspect, EventLost)
		tries := f.count("renew")
		if time.Sleep(time.Minute); f.count("renew") != tries {
			t.Errorf("renewed %d times after the deadline", f.count("renew")-tries)
		}
	})
}

func TestL5RenewalsKeepToTheirPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" {
				time.Sleep(700 * time.Millisecond)
			}
			return nil
		}
		c, _ := open(t, f)
		start := time.Now()
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 9 * time.Second}))
		time.Sleep(5 * time.Minute)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := f.times("renew")
		if first := at[0].Sub(start); first < 2700*time.Millisecond || first > 3*time.Second {
			t.Errorf("first renewal after %v, want up to a tenth before 3s", first)
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < 2900*time.Millisecond || gap > 3100*time.Millisecond {
				t.Fatalf("renewal %d came %v after the one before, want 3s", i, gap)
			}
		}
		if n := len(at); n < 99 || n > 101 {
			t.Errorf("%d renewals in 5 minutes, want 100: slow answers must not add up", n)
		}
	})
}

func TestL5RenewalsShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapBatcher)
		c, _ := open(t, f)
		const n = 1000
		leases := make([]*Lease, n)
		for i := range leases {
			leases[i] = acquire(t, lockOf(t, c, fmt.Sprint(i), nil))
		}
		time.Sleep(time.Minute)
		for i, l := range leases {
			if !l.Valid() {
				t.Fatalf("lease %d: %v", i, l.Err())
			}
		}
		// Each lease is renewed 18 times. Each time, 8 calls are enough for all 1000 leases.
		if calls := f.count("batch") + f.count("renew"); calls > 18*8 {
			t.Errorf("%d calls for %d renewals", calls, 18*n)
		}
	})
}

func TestL5WithoutBatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var now, most atomic.Int32
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Millisecond)
				now.Add(-1)
			}
			return nil
		}
		c, _ := open(t, f)
		var leases []*Lease
		for i := range 500 {
			leases = append(leases, acquire(t, lockOf(t, c, fmt.Sprint(i), nil)))
		}
		time.Sleep(time.Minute)
		for _, l := range leases {
			if !l.Valid() {
				t.Fatal(l.Err())
			}
		}
		if m := most.Load(); m > 2*maxRenewers {
			t.Errorf("%d renewals at once", m)
		}
	})
}

func TestL8CallGetsAThirdOfWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var budgets []time.Duration
		f.before = func(ctx context.Context, op string, _ driver.Request) error {
			if op != "renew" {
				return nil
			}
			end, _ := ctx.Deadline()
			f.mu.Lock()
			budgets = append(budgets, time.Until(end))
			f.mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		}
		c, _ := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 9 * time.Second}))
		<-lease.Done()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(budgets) < 5 {
			t.Errorf("%d tries before the deadline, want more than 4", len(budgets))
		}
		for _, b := range budgets {
			if b > 9*time.Second*2/9+100*time.Millisecond { // at the first renewal, about 2/3 of the TTL is left
				t.Errorf("a renewal was given %v", b)
			}
		}
	})
}

func TestL8UpRenewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWatcher)
		c, rec := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: time.Minute}))
		token := lease.Token()
		f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true, Err: errDown}
		synctest.Wait()
		if lease.State() != Suspect {
			t.Errorf("state %v while the plugin is down", lease.State())
		}
		f.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
		synctest.Wait()
		if f.count("renew") != 1 || lease.State() != Held || lease.Token() != token {
			t.Errorf("%d renewals, state %v, token %d -> %d", f.count("renew"), lease.State(), token, lease.Token())
		}
		rec.want(t, "a", EventAcquired, EventSuspect)
		rec.want(t, "", EventPluginDown, EventPluginUp)
	})
}

func TestL8UpRenewsWhatIsBeingRenewedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWatcher)
		f.after = func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" { // the plugin process dies after its answer
				time.Sleep(time.Second)
			}
			return nil
		}
		c, _ := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: time.Minute}))
		for f.count("renew") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		f.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
		time.Sleep(1500 * time.Millisecond)
		if n := f.count("renew"); n != 2 || !lease.Valid() {
			t.Errorf("%d renewals, valid %v", n, lease.Valid())
		}
	})
}

func TestL8LeasesDieWithTheirPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWatcher)
		f.props.SurvivesPlugin = false
		c, _ := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", nil))
		f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true, Err: errDown}
		<-lease.Done()
		if CauseName(lease.Err()) != "plugin died" {
			t.Errorf("cause %v", lease.Err())
		}
	})
}

func TestL8GrantOfADeadPluginIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWatcher)
		f.props.SurvivesPlugin = false
		f.after = func(_ context.Context, op string, _ driver.Request) error {
			if op == "acquire" { // the plugin dies before the host reads its answer
				f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true}
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		c, _ := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", nil))
		if lease.Valid() || !errors.Is(lease.Err(), ErrPluginDied) {
			t.Errorf("valid %v, cause %v", lease.Valid(), lease.Err())
		}
	})
}

// The function hangs is a health check that ignores its ctx and returns too late.
func hangs(context.Context) error {
	time.Sleep(time.Minute)
	return nil
}

func TestLostCauses(t *testing.T) {
	cases := []struct {
		want string
		opts LockOptions
		do   func(f *fake, l *Lease)
	}{
		{"taken", LockOptions{}, func(f *fake, _ *Lease) { f.steal("a") }},
		{"revoked", LockOptions{}, func(f *fake, _ *Lease) { f.forget("a") }},
		{"max hold", LockOptions{MaxHold: 20 * time.Second}, func(*fake, *Lease) {}},
		{"unhealthy", LockOptions{Healthy: func(context.Context) error { return errors.New("disk full") }}, func(*fake, *Lease) {}},
		{"unhealthy", LockOptions{Healthy: hangs}, func(*fake, *Lease) {}},
		{"revoked", LockOptions{TTL: time.Minute}, func(f *fake, l *Lease) {
			f.notices <- driver.Notice{Kind: driver.NoticeLost, Name: "a", Owner: l.Owner(), Token: GrantNumber(l.Token())}
		}},
		{"taken", LockOptions{TTL: time.Minute}, func(f *fake, l *Lease) {
			f.notices <- driver.Notice{
				Kind: driver.NoticeLost, Name: "a", Owner: l.Owner(), Token: GrantNumber(l.Token()),
				Err: &NotHeldError{Holder: driver.Holder{Owner: "x", Label: "other:2"}},
			}
		}},
	}
	for _, tc := range cases {
		t.Run(tc.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(driver.CapWatcher)
				c, rec := open(t, f)
				lease := acquire(t, lockOf(t, c, "a", &tc.opts))
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				began := time.Now()
				tc.do(f, lease)
				<-ctx.Done()
				if held := time.Since(began); tc.want == "max hold" && held != tc.opts.MaxHold {
					t.Errorf("held for %v, want %v", held, tc.opts.MaxHold)
				}
				if got := CauseName(context.Cause(ctx)); got != tc.want || CauseName(lease.Err()) != got {
					t.Errorf("cause %q (%v), want %q", got, lease.Err(), tc.want)
				}
				synctest.Wait()
				rec.want(t, "a", EventAcquired, EventLost)
				if n := f.count("release"); n != 0 {
					t.Errorf("a lost lease was released %d times", n)
				}
			})
		})
	}
}

// A new lease wakes the scheduler's goroutine. If the lease is released at once, it has
// ended before that goroutine finds it. A second such lease must not wake the goroutine.
func TestSchedulerSleepsWhileLeasesComeAndGo(t *testing.T) {
	c, _ := open(t, newFake())
	s := &c.sched
	s.running = true // so that no goroutine starts; the test calls step
	for range 2 {
		s.step()
	}
	l := lockOf(t, c, "a", nil)
	cycle := func() bool {
		if err := acquire(t, l).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.wake:
			return true
		default:
			return false
		}
	}
	if !cycle() {
		t.Error("it was not woken after a long sleep")
	}
	s.step()
	if cycle() {
		t.Error("it was woken for a second lease")
	}
}
