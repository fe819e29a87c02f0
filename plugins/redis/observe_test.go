package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

// observe returns a channel of the holders that Observe emits until the test ends.
func observe(t *testing.T, b *Backend, name string) <-chan driver.Holder {
	t.Helper()
	seen := make(chan driver.Holder, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Observe(ctx, name, func(h driver.Holder) { seen <- h }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("observe: %v", err)
		}
	})
	if h := next(t, seen); h.Held() {
		t.Fatalf("first %+v", h)
	}
	return seen
}

func next(t *testing.T, seen <-chan driver.Holder) driver.Holder {
	t.Helper()
	select {
	case h := <-seen:
		return h
	case <-time.After(timeout):
		t.Fatalf("no change in %v", timeout)
		panic("unreachable")
	}
}

// TestObserve checks that an observer sees each change soon, not counting pauses of this process.
func TestObserve(t *testing.T) {
	s := start(t, nil)
	b, other, c := connect(t, at(s)), connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	const name = "a"
	seen := observe(t, b, name)

	expect := func(what string, limit time.Duration, change func() driver.Holder) {
		t.Helper()
		var want, h driver.Holder
		took := proc.Ran(func() {
			want = change()
			h = next(t, seen)
		})
		if h.Owner != want.Owner || h.Token != want.Token || string(h.Value) != string(want.Value) {
			t.Errorf("%s: saw %+v, want %+v", what, h, want)
		}
		t.Logf("%s seen after %v", what, took)
		if took > limit {
			t.Errorf("%s seen after %v, want %v", what, took, limit)
		}
	}
	const pushed, polled = 250 * time.Millisecond, 1250 * time.Millisecond
	r, short := lease(name, "o1"), lease(name, "o2")
	r.Value = []byte("v1")
	short.TTL = time.Second
	expect("acquire", pushed, func() driver.Holder {
		r = acquire(t, other, r)
		return driver.Holder{Owner: "o1", Token: r.Token, Value: r.Value}
	})
	expect("proclaim", pushed, func() driver.Holder {
		r.Value = []byte("v2")
		must(t, other.Proclaim(ctx, r))
		return driver.Holder{Owner: "o1", Token: r.Token, Value: r.Value}
	})
	expect("release", pushed, func() driver.Holder {
		must(t, other.Release(ctx, r))
		return driver.Holder{}
	})
	expect("foreign acquire", polled, func() driver.Holder {
		must(t, c.Set(ctx, name, "theirs", 0).Err())
		return driver.Holder{Owner: "theirs"}
	})
	expect("foreign release", polled, func() driver.Holder {
		must(t, c.Del(ctx, name).Err())
		return driver.Holder{}
	})
	expect("short acquire", pushed, func() driver.Holder {
		short = acquire(t, other, short)
		return driver.Holder{Owner: "o2", Token: short.Token}
	})
	expect("expiry", short.TTL+pushed, func() driver.Holder { return driver.Holder{} })
}

func TestObserveEndsWithTheStore(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ended := make(chan error, 1)
	first := make(chan struct{}, 1)
	go func() {
		ended <- b.Observe(t.Context(), "a", func(driver.Holder) { first <- struct{}{} })
	}()
	<-first
	must(t, s.Stop())
	select {
	case err := <-ended:
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("observe: %v", err)
		}
	case <-time.After(timeout):
		t.Fatal("still observing")
	}
}

func TestWatch(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	notices := make(chan driver.Notice, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, func(n driver.Notice) { notices <- n }) }()
	expect := func(kind driver.NoticeKind) {
		t.Helper()
		select {
		case n := <-notices:
			if n.Kind != kind || n.Plugin || (kind == driver.NoticeDown) != (n.Err != nil) {
				t.Errorf("notice %+v, want kind %d", n, kind)
			}
		case <-time.After(timeout):
			t.Fatalf("no notice of kind %d", kind)
		}
	}
	eventually(t, "up", b.wakeupsUp)
	must(t, s.Stop())
	expect(driver.NoticeDown)
	must(t, s.Start(t.Context(), false))
	expect(driver.NoticeUp)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
}

func TestListAndBreak(t *testing.T) {
	s := start(t, nil)
	o := at(s)
	o.Prefix = "my*:"
	b, c := connect(t, o), plain(t, s)
	ctx := t.Context()
	var want []string
	for i := range 700 {
		want = append(want, fmt.Sprintf("job/%03d", i))
	}
	want = append(want, "job/{x}", "job/%7B", "job/\x00")
	for i, name := range want {
		acquire(t, b, lease(name, fmt.Sprint("o", i)))
	}
	acquire(t, b, lease("other", "x"))
	acquire(t, connect(t, at(s)), lease("job/without-prefix", "x"))
	must(t, c.Set(ctx, "my*:job/foreign", "v", time.Minute).Err())
	must(t, c.RPush(ctx, "my*:job/list", "v").Err())
	want = append(want, "job/foreign", "job/list")

	var got []string
	must(t, b.List(ctx, "job/", func(h driver.Holder) bool {
		got = append(got, h.Name)
		if h.Owner == "" || h.TTL <= 0 && h.Name != "job/list" {
			t.Errorf("listed %+v", h)
		}
		return true
	}))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("listed %d locks, want %d: %.500q", len(got), len(want), got)
	}
	count := 0
	must(t, b.List(ctx, "", func(driver.Holder) bool { count++; return count < 3 }))
	if count != 3 {
		t.Errorf("asked %d times after the end", count)
	}

	h, err := b.Inspect(ctx, "other")
	must(t, err)
	notHeld(t, b.Break(ctx, "other", h.Token+1))
	must(t, b.Break(ctx, "other", h.Token))
	notHeld(t, b.Break(ctx, "other", h.Token))
	if again := acquire(t, b, lease("other", "y")); again.Token <= h.Token {
		t.Errorf("token %d after breaking %d", again.Token, h.Token)
	}
}
