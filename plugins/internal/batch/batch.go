// Package batch lets the operations of many callers share round trips to a
// store.
//
// A [Batcher] has a few senders. An operation that finds one idle is sent at
// once and alone; those that come while all are busy go out together, with the
// sender that is free first. So batches grow with the load, and no operation
// waits for others to come. A [Queue] says what goes into the next batch, and a
// [Ticket] lets a caller give its operation up until that is sent.
package batch

import (
	"runtime"
	"sync"
)

// Options are how a [Batcher] works.
type Options[T any] struct {
	Limits[T]
	// Senders is how many batches are under way at a time.
	Senders int
	// Send sends a batch, which is not empty, and answers its operations. When
	// that takes long it may call handOn, from any goroutine but before it
	// returns: then another sender has its place. A second call does nothing.
	Send func(batch []T, handOn func())
}

// Batcher sends what is added to it. Its methods may be called from any number
// of goroutines.
type Batcher[T any] struct {
	opts Options[T]

	mu      sync.Mutex
	queue   Queue[T]
	senders int             // that have a place, at most Options.Senders
	idle    []chan struct{} // wakes each of them that has nothing to do
	closed  bool
	work    sync.WaitGroup // of the senders
}

// New returns a Batcher, whose goroutines are started as they are needed.
func New[T any](o Options[T]) *Batcher[T] {
	return &Batcher[T]{opts: o, queue: NewQueue(o.Limits)}
}

// Add queues ops, in this order, and returns at once. After Close it does
// nothing and returns false. What is added once is sent or dropped by
// [Limits].Claim, whatever comes.
func (b *Batcher[T]) Add(ops ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue.Add(ops...)
	b.start()
	return true
}

// start has as many senders look as there are batches to send. The caller
// holds mu.
func (b *Batcher[T]) start() {
	for wanted := b.queue.batches(); wanted > 0; wanted-- {
		last := len(b.idle) - 1
		switch {
		case last >= 0:
			b.idle[last] <- struct{}{} // it has room for one
			b.idle = b.idle[:last]
		case b.senders < b.opts.Senders:
			b.senders++
			b.work.Go(b.send)
		default:
			return // those that are busy look again when they are free
		}
	}
}

// send is a sender.
//
// Note: a goroutine for each batch grows its stack each time, through a client
// and the system call: that was an eighth of a plugin's processor time.
func (b *Batcher[T]) send() {
	wake := make(chan struct{}, 1)
	replaced := false // guarded by mu
	handOn := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !replaced {
			replaced = true
			b.senders--
			b.start()
		}
	}
	for {
		// Callers that are about to ask get into the same batch.
		runtime.Gosched()
		batch, over := b.take(wake, &replaced)
		switch {
		case over:
			return
		case batch == nil:
			<-wake
		default:
			b.opts.Send(batch, handOn)
		}
	}
}

// take returns the next batch, or nil when there is none: then the sender waits
// for wake. It reports over to one that is replaced or, after Close, has nothing
// more to do.
func (b *Batcher[T]) take(wake chan struct{}, replaced *bool) (batch []T, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *replaced {
		return nil, true
	}
	if batch = b.queue.Take(); batch != nil {
		return batch, false
	}
	if b.closed {
		return nil, true
	}
	b.idle = append(b.idle, wake)
	return nil, false
}

// Close has Add refuse operations, and returns when all that were added are
// answered.
func (b *Batcher[T]) Close() {
	b.mu.Lock()
	b.closed = true
	for _, wake := range b.idle {
		close(wake)
	}
	b.idle = nil
	b.mu.Unlock()
	b.work.Wait()
}
