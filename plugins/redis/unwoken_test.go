package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
)

// TestWaitWithoutSubscribe checks that a waiter polls if its user lacks the right to subscribe. The
// waiter must send few requests and open few connections.
func TestWaitWithoutSubscribe(t *testing.T) {
	s := start(t, nil)
	c := plain(t, s)
	must(t, c.Do(t.Context(), "acl", "setuser", "app", "on", ">s3cret", "~*", "&*", "+@all", "-subscribe").Err())
	told := make(chan error, 8)
	client := core.New(connect(t, Options{Address: []string{"redis://app:s3cret@" + s.Addr()}}), &core.Options{
		OnEvent: func(ev core.Event) {
			if ev.Kind == core.EventWaitFailed {
				told <- ev.Err
			}
		},
	})
	defer client.Close(context.WithoutCancel(t.Context()))
	holder := connect(t, at(s))
	held := acquire(t, holder, lease("jobs", "o"))
	l, err := client.Lock("jobs", nil)
	must(t, err)
	got := make(chan error, 1)
	go func() {
		next, err := l.Acquire(t.Context())
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	select {
	case err := <-told:
		if !errors.Is(err, core.ErrDenied) {
			t.Errorf("told that waiting fails: %v", err)
		}
	case <-time.After(timeout):
		t.Error("it is not told that waiting fails")
	}
	const window = 3 * time.Second
	must(t, c.ConfigResetStat(t.Context()).Err())
	select {
	case err := <-got:
		t.Fatalf("the waiter has ended: %v", err)
	case <-time.After(window):
	}
	info, err := c.Info(t.Context(), "commandstats").Result()
	must(t, err)
	questions, connections := commandCalls(info, "evalsha"), commandCalls(info, "hello")
	t.Logf("%v questions and %v connections in %v", questions, connections, window)
	if questions > 60 || connections > 30 {
		t.Errorf("%v questions and %v connections in %v", questions, connections, window)
	}
	must(t, holder.Release(t.Context(), held))
	must(t, <-got)
}
