// Package deliver calls the application's loggers and callbacks on separate goroutines. A callback
// may call functions of this module. It may also block for ever, for example in a write to a full
// pipe. So a callback must not run on a goroutine that a lease or a plugin depends on.
package deliver

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"
)

// grace is the longest time that Flush still waits after its ctx has ended. Every callback that
// does not block returns within this time.
const grace = 50 * time.Millisecond

// Queue passes items to a callback, one at a time, in the order of Add, and on a goroutine that
// lives while there are items. If there is no room for an item, Add drops it. With the next item,
// the callback gets the number of items that were dropped before it.
//
// A panic in the callback ends the process. If the callback ends its goroutine, as
// testing.T.FailNow does, another goroutine delivers the remaining items.
type Queue[T any] struct {
	callback func(item T, dropped uint64)
	capacity int

	mu      sync.Mutex
	waiting []entry[T]
	size    int // total size of the items in waiting
	dropped uint64
	running bool
	idle    chan struct{} // made by Flush, closed when all items are delivered

	current []entry[T] // used only by the delivering goroutine
}

type entry[T any] struct {
	item    T
	dropped uint64
}

// New returns an empty queue. Add drops an item that would make the total size of the waiting items
// exceed capacity. Items in delivery do not count, and their total size can be as large.
func New[T any](capacity int, callback func(item T, dropped uint64)) *Queue[T] {
	return &Queue[T]{callback: callback, capacity: capacity}
}

// Add queues an item of the given size and returns true. If there is no room for the item, Add
// drops it and returns false. Add never waits for a callback, so the caller may hold mutexes.
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

// Force queues an item even if there is no room for it. Use Force for few items only.
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

// Flush waits until the callback has returned for all items, but at most for timeout. If
// ctx ends during that time, Flush waits for at most 50 ms more. If a callback of any queue calls
// Flush, Flush returns at once, because it could otherwise wait for that callback.
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
		if !finished { // the callback has called runtime.Goexit
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

// The method next moves all items from the field waiting to the field current. If no item waits,
// next returns false, and the calling goroutine must end.
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

// deliver is the first function of each goroutine that delivers items.
//
//go:noinline
func deliver(run func()) { run() }

var deliverName = runtime.FuncForPC(reflect.ValueOf(deliver).Pointer()).Name()

// delivering reports whether the calling goroutine delivers the items of a queue. It searches the
// goroutine's stack for the function deliver, because goroutines have no names.
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
