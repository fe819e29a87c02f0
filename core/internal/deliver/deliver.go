// Package deliver calls loggers and callbacks of the application on separate goroutines. Such code
// may call back into this module. It may also block, even for ever, for example if it writes to a
// pipe that is not read. So it must not run on a goroutine on which a lease or a plugin depends.
package deliver

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"
)

// grace is the longest time for which a Flush still waits after its ctx has ended. It is long
// enough for every callback that does not block.
const grace = 50 * time.Millisecond

// Queue delivers items one at a time and in the order of Add, from a goroutine that lives while
// there are items. If there is no room for an item, it is dropped. The next item that is queued is
// delivered with the number of items that were dropped just before it.
//
// A panic in a callback is not recovered, so it ends the process. If a callback ends
// its goroutine, as testing.T.FailNow does, deliveries go on in another goroutine.
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

// New returns an empty queue. Add lets the total size of waiting items grow to capacity. Items that
// the delivering goroutine has already taken do not count, and can reach the same size.
func New[T any](capacity int, callback func(item T, dropped uint64)) *Queue[T] {
	return &Queue[T]{callback: callback, capacity: capacity}
}

// Add queues an item, or drops it if there is no room, and reports whether it was
// queued. Add never waits for a callback, and may be called while mutexes are held.
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

// Force queues an item even if there is no room for it, so callers must use it for few items only.
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

// Flush waits until all items are delivered, but at most for the time timeout. After ctx has ended,
// it waits for at most the time grace. A Flush that is called by a callback of any queue returns at
// once, because it could otherwise wait for that callback.
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
		if !finished { // the callback called runtime.Goexit; a panic would end the process
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

// The next method moves all waiting items to the current field. If no item waits, it returns false,
// and the goroutine must end.
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

// delivering reports whether the calling goroutine delivers items. Goroutines have no
// names, so it searches the stack for the function deliver.
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
