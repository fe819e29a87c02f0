package core

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/core/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type recorder struct {
	c      *Client
	mu     sync.Mutex
	events []Event
}

func (r *recorder) on(ev Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

func (r *recorder) kinds(name string) []EventKind {
	r.c.events.queue.Flush(context.Background(), time.Minute)
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []EventKind
	for _, ev := range r.events {
		if ev.Name == name && ev.Kind != EventRenewed && ev.Kind != EventOpened {
			out = append(out, ev.Kind)
		}
	}
	return out
}

func (r *recorder) last(t *testing.T, name string) Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range slices.Backward(r.events) {
		if ev.Name == name {
			return ev
		}
	}
	t.Fatalf("no event of %q", name)
	return Event{}
}

func (r *recorder) want(t *testing.T, name string, kinds ...EventKind) {
	t.Helper()
	if got := r.kinds(name); !slices.Equal(got, kinds) {
		t.Errorf("events of %q: %v, want %v", name, got, kinds)
	}
}

// open returns a client and a recorder of its events. The client is closed after the test.
func open(t testing.TB, b driver.Backend) (*Client, *recorder) {
	rec := &recorder{}
	c := New(b, &Options{
		Label: "host:1", OnEvent: rec.on,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	rec.c = c
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return c, rec
}

func lockOf(t testing.TB, c *Client, name string, opts *LockOptions) *Lock {
	t.Helper()
	l, err := c.Lock(name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t testing.TB, l *Lock) *Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
