package core

import (
	"container/heap"
	"iter"
)

// leaseHeap is a heap of leases by next.
type leaseHeap []leaseEntry

// leaseEntry has the lease's next beside it. Most leases have left the
// processor's caches when they are compared, and would have to be fetched.
type leaseEntry struct {
	next  instant
	lease *Lease
}

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lease.index, h[j].lease.index = i, j
}

// Push implements heap.Interface.
func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, leaseEntry{l.next, l})
}

// Pop implements heap.Interface.
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last].lease
	(*h)[last] = leaseEntry{}
	*h = (*h)[:last]
	l.index = -1
	return l
}

// moved puts l, whose next has changed, in its place.
func (h *leaseHeap) moved(l *Lease) {
	(*h)[l.index].next = l.next
	heap.Fix(h, l.index)
}

// reorder is moved for all leases.
func (h *leaseHeap) reorder() {
	for i := range *h {
		(*h)[i].next = (*h)[i].lease.next
	}
	heap.Init(h)
}

// all are the leases in no order.
func (h leaseHeap) all() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for i := range h {
			if !yield(h[i].lease) {
				return
			}
		}
	}
}
