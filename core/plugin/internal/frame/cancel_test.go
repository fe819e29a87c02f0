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
	"github.com/lockbench/lockbench/core/internal/cancellation"
)

func TestCancelTravels(t *testing.T) {
	for _, others := range []int{0, 3} { // with 0 others, the caller reads its own reply
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

// stuckValues is the context of a call. Its Value method blocks, as may happen with a context whose
// type the application defines.
type stuckValues struct {
	context.Context
	cancellation.Signal
	asked atomic.Int64
	freed chan struct{}
}

func (*stuckValues) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *stuckValues) Done() <-chan struct{}     { return c.Signal.Done() }
func (c *stuckValues) Err() error                { return c.Signal.Err() }
func (c *stuckValues) Value(any) any {
	c.asked.Add(1)
	<-c.freed
	return nil
}

// A caller may read the replies to other calls besides its own. TestStuckValuesHoldUpNoReply
// checks that no reply is late if a method of that caller's context blocks.
func TestStuckValuesHoldUpNoReply(t *testing.T) {
	var slow atomic.Int64
	p := open(t, blocking(nil, &slow))
	ctx := &stuckValues{freed: make(chan struct{})}
	defer close(ctx.freed)
	ended := make(chan error, 1)
	go func() {
		_, err := p.TryAcquire(ctx, driver.Request{Name: "slow"})
		ended <- err
	}()
	eventually(t, "the request is there, or its caller waits for its context", func() bool { return slow.Load()+ctx.asked.Load() > 0 })
	other, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if token, err := p.TryAcquire(other, driver.Request{Name: "quick"}); token != 1 || err != nil {
		t.Errorf("another call: %d, %v", token, err)
	}
	ctx.Cancel(context.Canceled)
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-other.Done():
		t.Error("the caller does not return at the end of its context")
	}
	if n := ctx.asked.Load(); n > 0 {
		t.Errorf("the link asked for %d values", n)
	}
}

// TestWaitGivenUp checks that a grant is not lost if it comes while the caller gives up its Wait. A
// plugin that hangs must not delay the caller.
func TestWaitGivenUp(t *testing.T) {
	for _, others := range []int{0, 3} {
		for name, token := range map[string]uint64{"it waits": 0, "it is granted": 7, "the plugin hangs": 0} {
			t.Run(fmt.Sprintf("%s, %d others", name, others), func(t *testing.T) {
				var slow atomic.Int64
				free := make(chan struct{})
				hold := blocking(free, &slow)
				wait := hold.wait
				hold.wait = func(ctx context.Context) error {
					if name == "the plugin hangs" {
						ctx = context.WithoutCancel(ctx)
					}
					err := wait(ctx)
					if token > 0 {
						return nil
					}
					return err
				}
				hold.grant = driver.Grant{Token: token, Sent: time.Now(), For: time.Second}
				p := open(t, hold)
				defer close(free)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var work sync.WaitGroup
				for range 1 + others {
					work.Go(func() {
						g, err := p.Wait(ctx, driver.Request{Name: "slow", TTL: time.Minute}, time.Minute)
						if g.Token != token || (err == nil) != (token > 0) || err != nil && !errors.Is(err, context.Canceled) {
							t.Errorf("grant %d, %v", g.Token, err)
						}
						if late := g.Sent.Sub(hold.grant.Sent); token > 0 && (late > 0 || g.For != time.Second) {
							t.Errorf("the sign of life was sent %v later, and it is for %v", late, g.For)
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

// TestDeadlineTravels checks that the request in the plugin ends soon after the caller's deadline,
// but not before it. The plugin counts the time left from the arrival of the request, so the
// caller's cancellation may end the request before the plugin does.
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
