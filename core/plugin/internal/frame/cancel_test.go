package frame

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestCancelTravels(t *testing.T) {
	for _, others := range []int{0, 3} { // alone, the caller reads its reply itself
		var slow atomic.Int64
		p := open(t, blocking(nil, &slow))
		var work sync.WaitGroup
		cancels := []context.CancelFunc{}
		for range 1 + others {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			work.Go(func() {
				_, err := p.TryAcquire(ctx, driver.Request{Name: "slow"})
				if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
					t.Errorf("got %v", err)
				}
			})
		}
		eventually(t, "all requests are there", func() bool { return slow.Load() == int64(1+others) })
		for _, cancel := range cancels {
			cancel()
		}
		work.Wait()
		eventually(t, "all requests are cancelled", func() bool { return slow.Load() == 0 })
		if token, err := p.TryAcquire(t.Context(), driver.Request{Name: "quick"}); token != 1 || err != nil {
			t.Errorf("afterwards: %d, %v", token, err)
		}
	}
}

// Only the plugin knows whether a wait that is given up had gone on to acquire.
func TestWaitGivenUpSaysWhetherItAcquired(t *testing.T) {
	for _, others := range []int{0, 3} {
		for _, tc := range []struct {
			name     string
			acquires bool // before it is given up
			ignores  bool // the plugin does not react
			wants    bool // ErrNotSent
		}{
			{name: "it waits", wants: true},
			{name: "it acquires", acquires: true},
			{name: "the plugin hangs", ignores: true},
		} {
			t.Run(fmt.Sprintf("%s, %d others", tc.name, others), func(t *testing.T) {
				var slow atomic.Int64
				free := make(chan struct{})
				hold := blocking(free, &slow)
				wait := hold.wait
				hold.wait = func(ctx context.Context) error {
					switch {
					case tc.acquires:
						return nil
					case tc.ignores:
						return wait(context.WithoutCancel(ctx))
					}
					return wait(ctx)
				}
				p := open(t, hold)
				defer close(free)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var work sync.WaitGroup
				for range 1 + others {
					work.Go(func() {
						_, _, err := p.WaitAcquire(ctx, driver.Request{Name: "slow", TTL: time.Minute}, time.Minute)
						if !errors.Is(err, context.Canceled) {
							t.Errorf("got %v", err)
						}
						if got := errors.Is(err, driver.ErrNotSent); got != tc.wants {
							t.Errorf("not sent: %v, want %v: %v", got, tc.wants, err)
						}
					})
				}
				eventually(t, "all requests are there", func() bool { return slow.Load() == int64(1+others) })
				cancel()
				work.Wait()
				if token, err := p.TryAcquire(t.Context(), driver.Request{Name: "quick"}); token != 1 || err != nil {
					t.Errorf("afterwards: %d, %v", token, err)
				}
			})
		}
	}
}

// TestDeadlineTravels has the plugin's request end with the caller's deadline. The
// plugin counts its own from when the request came, so the caller's cancellation
// may be there first: it is the caller's that neither of them precedes.
func TestDeadlineTravels(t *testing.T) {
	var deadline time.Time
	over := make(chan time.Time, 1)
	p := open(t, &far{acquire: func(ctx context.Context, _ driver.Request) (uint64, error) {
		deadline, _ = ctx.Deadline()
		<-ctx.Done()
		over <- time.Now()
		return 0, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.TryAcquire(ctx, driver.Request{}); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
		t.Errorf("got %v, ctx %v", err, ctx.Err())
	}
	ended := <-over
	mine, _ := ctx.Deadline()
	for what, at := range map[string]time.Time{"has its deadline": deadline, "ended": ended} {
		if late := at.Sub(mine); late < 0 || late > time.Second {
			t.Errorf("the plugin's request %s %v after the caller's deadline", what, late)
		}
	}
}
