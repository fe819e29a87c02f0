// Package deliver calls code of the application that is only informed, such
// as loggers and callbacks, where it can do no harm. Such code may call
// back. It may block, for ever if it writes to a pipe without a reader. So
// it must not run on a goroutine on which a lease or a plugin depends.
package deliver

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"
)

// grace is how long a Flush waits after its ctx has ended: enough for every
// callback that does not block.
const grace = 50 * time.Millisecond

// Queue delivers items one at a time and in the order of Add, from a goroutine
// that lives while there are any. An item that does not fit is dropped and
// counted, and the next item that fits is delivered with that count.
//
// A panic in a callback is not recovered, so it ends the process. A callback
// that ends its goroutine, as testing.T.FailNow does, does not end deliveries.
type Queue[T any] struct {
	callback func(item T, dropped uint64)
	capacity int

	mu      sync.Mutex
	waiting []entry[T]
	size    int // of waiting
	dropped uint64
	running bool
	idle    chan struct{} // made by Flush, closed when all is delivered

	current []entry[T] // belongs to the delivering goroutine
}

type entry[T any] struct {
	item    T
	dropped uint64
}

// New returns an empty queue. Items with a total size of capacity may wait,
// and the delivering goroutine may hold as much again.
func New[T any](capacity int, callback func(item T, dropped uint64)) *Queue[T] {
	return &Queue[T]{callback: callback, capacity: capacity}
}

// Add queues an item, and reports whether it fit. It never waits for a
// callback, and may be called with locks held.
func (q *Queue[T]) Add(item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+size > q.capacity {
		q.dropped++
		return false
	}
	q.put(item, size)
	return true
}

// Force is Add for an item that must not be dropped. Its caller sees to it that
// there are not many of them.
func (q *Queue[T]) Force(item T, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(item, size)
}

func (q *Queue[T]) put(item T, size int) {
	q.waiting = append(q.waiting, entry[T]{item, q.dropped})
	q.size += size
	q.dropped = 0
	if !q.running {
		q.running = true
		go deliver(q.run)
	}
}

// Flush waits until everything was delivered, for at most timeout, or only a
// moment once ctx has ended. Called from a callback of any queue it returns
// at once, because it would wait for itself.
func (q *Queue[T]) Flush(ctx context.Context, timeout time.Duration) {
	idle := q.busy()
	if idle == nil || delivering() {
		return
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
		return
	case <-timer.C:
		return
	case <-ctx.Done():
	}
	timer.Reset(min(grace, timeout))
	select {
	case <-idle:
	case <-timer.C:
	}
}

// busy returns a channel that is closed when all is delivered, nil if all is.
func (q *Queue[T]) busy() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		return nil
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	return q.idle
}

func (q *Queue[T]) run() {
	finished := false
	defer func() {
		if !finished { // by runtime.Goexit, or by a panic, which ends the process
			go deliver(q.run)
		}
	}()
	for len(q.current) > 0 || q.next() {
		e := q.current[0]
		q.current[0] = entry[T]{}
		q.current = q.current[1:]
		q.callback(e.item, e.dropped)
	}
	finished = true
}

// next takes over all waiting items. It returns false when there are none:
// then the goroutine must end.
func (q *Queue[T]) next() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.current, q.waiting, q.size = q.waiting, nil, 0
	if len(q.current) > 0 {
		return true
	}
	q.running = false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return false
}

// deliver is the first function of every delivering goroutine.
//
//go:noinline
func deliver(run func()) { run() }

var deliverName = runtime.FuncForPC(reflect.ValueOf(deliver).Pointer()).Name()

// delivering reports whether the calling goroutine is delivering. Go names no
// goroutine, but shows its stack.
func delivering() bool {
	for pcs, skip := make([]uintptr, 64), 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		if n == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function == deliverName {
				return true
			}
		}
	}
}
