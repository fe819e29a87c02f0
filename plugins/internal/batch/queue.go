package batch

// Limits say what a batch may hold. What is left out does not limit it.
type Limits[T any] struct {
	// Count is how many operations share a batch, at least 1, asked anew for
	// each.
	Count func() int
	// Size is what an operation takes of a batch, and Room what there is in one,
	// asked anew for each. What is larger than that goes alone.
	Size func(op T) int
	Room func() int
	// Name is of an operation's lock. No batch has a name twice: what does not
	// go into a batch lets others overtake it, but none of its own name.
	// Without Name nothing is overtaken.
	Name func(op T) string
	// Joins reports whether op may be in a batch that begins with first.
	Joins func(first, op T) bool
	// Claim is asked last, and reports whether op is to be sent. If not it
	// leaves the queue all the same. It must not call the Batcher.
	Claim func(op T) bool
}

// Queue holds operations until they are taken for a batch. It is guarded by
// whoever has it.
type Queue[T any] struct {
	limits  Limits[T]
	waiting []T
}

// noLimit is more than any queue holds.
const noLimit = 1 << 30

// NewQueue returns an empty Queue.
func NewQueue[T any](l Limits[T]) Queue[T] {
	if l.Count == nil {
		l.Count = func() int { return noLimit }
	}
	if l.Size == nil {
		l.Size, l.Room = func(T) int { return 0 }, func() int { return 0 }
	}
	if l.Joins == nil {
		l.Joins = func(_, _ T) bool { return true }
	}
	if l.Claim == nil {
		l.Claim = func(T) bool { return true }
	}
	return Queue[T]{limits: l}
}

// Add appends ops.
func (q *Queue[T]) Add(ops ...T) { q.waiting = append(q.waiting, ops...) }

// Empty reports whether nothing waits.
func (q *Queue[T]) Empty() bool { return len(q.waiting) == 0 }

// Drain removes and returns all operations, claimed or not.
func (q *Queue[T]) Drain() []T {
	all := q.waiting
	q.waiting = nil
	return all
}

// batches is how many batches there are at least, were it for Count alone.
func (q *Queue[T]) batches() int {
	count := q.limits.Count()
	return (len(q.waiting) + count - 1) / count
}

// Take removes and returns the operations of the next batch, nil when there
// are none.
func (q *Queue[T]) Take() (batch []T) {
	l := &q.limits
	count, room, named := l.Count(), l.Room(), l.Name != nil
	var passed []T
	names := map[string]bool{} // of what is in the batch, or was passed
	at := 0
	for ; at < len(q.waiting) && len(batch) < count; at++ {
		op := q.waiting[at]
		size, name := l.Size(op), ""
		if named {
			name = l.Name(op)
		}
		fits := len(batch) == 0 || size <= room && !(named && names[name]) && l.Joins(batch[0], op)
		if !fits && !named {
			break
		}
		if fits && !l.Claim(op) {
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
