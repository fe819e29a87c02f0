package deliver

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatDoesNotFitIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		var items []int
		var dropped []uint64
		q := New(3, func(item int, n uint64) {
			<-open
			items, dropped = append(items, item), append(dropped, n)
		})
		q.Add(0, 1)
		synctest.Wait() // the callback has the item
		for i, fits := range []bool{true, true, false, true, false} {
			size := 1
			if i == 2 {
				size = 2
			}
			if got := q.Add(1+i, size); got != fits {
				t.Errorf("item %d fits: %v", 1+i, got)
			}
		}
		q.Force(6, 1)
		close(open)
		q.Flush(t.Context(), time.Hour)
		if !slices.Equal(items, []int{0, 1, 2, 4, 6}) || !slices.Equal(dropped, []uint64{0, 0, 0, 1, 1}) {
			t.Errorf("got %v, dropped %v", items, dropped)
		}
	})
}

func TestFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		q := New(3, func(int, uint64) { <-open })
		q.Flush(t.Context(), time.Hour) // the queue is empty
		q.Add(1, 1)
		took := func(ctx context.Context, most time.Duration) time.Duration {
			began := time.Now()
			q.Flush(ctx, most)
			return time.Since(began)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d := took(ctx, time.Hour); d != time.Second+grace {
			t.Errorf("with a ctx of 1s: %v", d)
		}
		if d := took(ctx, time.Millisecond); d > 2*time.Millisecond {
			t.Errorf("with an ended ctx and 1ms: %v", d)
		}
		if d := took(t.Context(), time.Minute); d != time.Minute {
			t.Errorf("with 1m: %v", d)
		}
		close(open)
	})
}

func TestCallbackMayFlushAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		var q *Queue[int]
		q = New(10, func(item int, _ uint64) {
			calls++
			if item < 3 {
				q.Add(item+1, 1)
			}
			deep(100, func() { q.Flush(t.Context(), time.Hour) })
			runtime.Goexit()
		})
		q.Add(0, 1)
		began := time.Now()
		q.Flush(t.Context(), time.Hour)
		if calls != 4 || time.Since(began) != 0 {
			t.Errorf("%d calls in %v, want 4 at once", calls, time.Since(began))
		}
	})
}

func deep(n int, f func()) {
	if n > 0 {
		deep(n-1, f)
		return
	}
	f()
}
