package kit

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// BatcherOptions are the settings of a [Batcher].
type BatcherOptions[T any] struct {
	Limits[T]
	// Senders is the largest number of senders (goroutines that call Send) at a time.
	Senders int
	// Send sends a batch of at least one operation and answers its operations. If Send takes long, it
	// may call the function handOn before it returns, from any goroutine. Another sender then replaces
	// the caller of Send, which no longer counts as a sender. A second call of handOn does nothing.
	Send func(batch []T, handOn func())
}

// Batcher lets the operations of many callers share round trips to a store. Any number of
// goroutines may call its methods.
//
// A Batcher has a few senders. If a sender is idle, it sends a new operation at once and alone.
// While all senders are busy, new operations wait, and the first sender that becomes free sends
// them together. So batches grow with the load, and no operation waits for other operations to
// come. A [Queue] selects the operations of the next batch. With a [Ticket], a caller can give up
// an operation that is not sent yet.
type Batcher[T any] struct {
	opts BatcherOptions[T]

	mu      sync.Mutex
	queue   Queue[T]
	senders int             // the number of senders, at most opts.Senders
	idle    []chan struct{} // wakes each idle sender
	closed  bool
	work    sync.WaitGroup // counts the senders' goroutines
}

// NewBatcher returns a Batcher. Its senders start when they are needed.
func NewBatcher[T any](o BatcherOptions[T]) *Batcher[T] {
	return &Batcher[T]{opts: o, queue: NewQueue(o.Limits)}
}

// Add queues the operations ops in their order and returns true at once. After Close, it only
// returns false. Every queued operation is sent, unless [Limits].Claim returns false for it.
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

// start wakes or starts one sender for each waiting batch, up to opts.Senders senders. The caller
// must hold mu.
func (b *Batcher[T]) start() {
	for wanted := b.queue.batches(); wanted > 0; wanted-- {
		last := len(b.idle) - 1
		switch {
		case last >= 0:
			b.idle[last] <- struct{}{} // the channel has room for one signal
			b.idle = b.idle[:last]
		case b.senders < b.opts.Senders:
			b.senders++
			b.work.Go(b.send)
		default:
			return // a busy sender takes the next batch when it is free
		}
	}
}

// send is the loop of one sender. It ends after Close, or when another sender replaces this one.
//
// Note: do not start a goroutine for each batch. Each new goroutine must grow its stack while it
// calls the store's client, and that took an eighth of a plugin's processor time.
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
		// Let other goroutines run first, so that they can add their operations to this batch.
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

// take returns the next batch for a sender. If batch is nil, the sender must wait for a signal on
// the channel wake. If over is true, the sender must end: it was replaced, or the Batcher is closed
// and empty.
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

// Close makes Add refuse new operations. It returns when all queued operations are answered.
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

// Limits say which operations may share a batch. A nil field means no limit.
type Limits[T any] struct {
	// Count returns the largest number of operations in the next batch, at least 1.
	Count func() int
	// Size returns the size of the operation op. Room returns the largest sum of sizes in the next
	// batch. An operation that is larger than Room gets a batch for itself.
	Size func(op T) int
	Room func() int
	// Name returns the name of op's lock. No batch has two operations with the same name. If an
	// operation does not fit into a batch, later operations on other locks may overtake it. If Name is
	// nil, no operation overtakes another.
	Name func(op T) string
	// Joins reports whether op may be in a batch that begins with the operation in parameter first.
	Joins func(first, op T) bool
	// Claim is called for an operation op that fits into the batch, after all other checks. If Claim
	// returns false, op leaves the queue and is not sent. Claim must not call the Batcher.
	Claim func(op T) bool
}

// Queue holds operations until they are taken for a batch. Only one goroutine at a time may use it.
type Queue[T any] struct {
	limits  Limits[T]
	waiting []T
}

// NewQueue returns an empty Queue.
func NewQueue[T any](l Limits[T]) Queue[T] {
	if l.Count == nil {
		l.Count = func() int { return 1 << 30 }
	}
	if l.Size == nil {
		l.Size, l.Room = func(T) int { return 0 }, func() int { return 0 }
	}
	return Queue[T]{limits: l}
}

// Add appends ops.
func (q *Queue[T]) Add(ops ...T) { q.waiting = append(q.waiting, ops...) }

// Empty reports whether no operation waits.
func (q *Queue[T]) Empty() bool { return len(q.waiting) == 0 }

// Drain removes and returns all operations without calling Claim.
func (q *Queue[T]) Drain() []T {
	all := q.waiting
	q.waiting = nil
	return all
}

// batches returns the number of batches that would empty the queue if Count were the only limit.
func (q *Queue[T]) batches() int {
	count := q.limits.Count()
	return (len(q.waiting) + count - 1) / count
}

// Take removes and returns the operations of the next batch, or nil if there are none.
func (q *Queue[T]) Take() (batch []T) {
	l := &q.limits
	count, room, named := l.Count(), l.Room(), l.Name != nil
	var passed []T
	names := map[string]bool{} // the names of the operations in batch and passed
	at := 0
	for ; at < len(q.waiting) && len(batch) < count; at++ {
		op := q.waiting[at]
		size, name := l.Size(op), ""
		if named {
			name = l.Name(op)
		}
		fits := len(batch) == 0 || size <= room && !(named && names[name]) && (l.Joins == nil || l.Joins(batch[0], op))
		if !fits && !named {
			break
		}
		if fits && l.Claim != nil && !l.Claim(op) {
			continue
		}
		if named {
			names[name] = true
		}
		if !fits {
			passed = append(passed, op)
			continue
		}
		room -= size
		batch = append(batch, op)
	}
	q.waiting = append(passed, q.waiting[at:]...)
	return batch
}

// Ticket decides whether an operation is sent. Its sender claims the operation, and its caller may
// give it up. The first of these two calls decides. An operation embeds its Ticket and must not be
// copied.
type Ticket struct {
	state atomic.Int32
	done  chan struct{}
}

const (
	queued int32 = iota
	sent
	givenUp
)

// Open makes the Ticket ready for Wait.
func (t *Ticket) Open() { t.done = make(chan struct{}) }

// Claim reports whether the caller still wants the operation. The sender calls Claim before it
// sends the operation. A claimed operation counts as sent.
func (t *Ticket) Claim() bool { return t.state.CompareAndSwap(queued, sent) }

// Unclaim undoes Claim. Call it only if the operation was certainly not executed.
func (t *Ticket) Unclaim() { t.state.Store(queued) }

// GiveUp gives up the operation and returns true. If a sender has claimed it, GiveUp returns false.
func (t *Ticket) GiveUp() bool { return t.state.CompareAndSwap(queued, givenUp) }

// GivenUp reports whether GiveUp was successful.
func (t *Ticket) GivenUp() bool { return t.state.Load() == givenUp }

// End marks the operation as answered, which ends Wait. It must be called once.
func (t *Ticket) End() { close(t.done) }

// Outcome is the state of an operation when [Ticket.Wait] returns.
type Outcome int

const (
	// Answered means that End was called.
	Answered Outcome = iota
	// NotSent means that the operation was given up and will never be sent.
	NotSent
	// Unknown means that the operation was sent but not answered yet.
	Unknown
)

// Wait waits until End is called or ctx ends. When ctx ends, Wait gives up the operation if the
// sender has not claimed it yet.
func (t *Ticket) Wait(ctx context.Context) Outcome {
	select {
	case <-t.done:
		return Answered // even if ctx has ended too
	default:
	}
	select {
	case <-t.done:
		return Answered
	case <-ctx.Done():
	}
	if t.GiveUp() {
		return NotSent
	}
	return Unknown
}
