package kit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// store simulates a store that answers each batch after a delay (takes). It records all batches.
type store struct {
	mu      sync.Mutex
	takes   time.Duration
	batches []string
	busy    int
	most    int // the highest value of busy
}

func (s *store) send(batch []int, _ func()) {
	s.mu.Lock()
	s.batches = append(s.batches, fmt.Sprint(batch))
	s.busy++
	s.most = max(s.most, s.busy)
	s.mu.Unlock()
	time.Sleep(s.takes)
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
}

func (s *store) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.batches)
	return s.batches
}

func count(n int) func() int { return func() int { return n } }

// TestBatcher checks that the first operation is sent alone, that operations added while every
// sender is busy are sent together, and that no operation waits for other operations to come.
func TestBatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Second}
		b := NewBatcher(BatcherOptions[int]{Senders: 2, Send: s.send})
		defer b.Close()
		for i := range 6 {
			b.Add(i)
			synctest.Wait() // now operation i is sent, if a sender is free
		}
		time.Sleep(1500 * time.Millisecond)
		if got, want := s.got(), []string{"[0]", "[1]", "[2 3 4 5]"}; !slices.Equal(got, want) {
			t.Errorf("batches %v, want %v", got, want)
		}
		time.Sleep(time.Hour)
		b.Add(6) // a sender must still run after an idle hour
		synctest.Wait()
		if got := s.got(); !slices.Contains(got, "[6]") {
			t.Errorf("batches %v, want [6] among them", got)
		}
	})
}

// TestBatcherWidth adds more operations at once than fit into one batch. Several senders, but at
// most BatcherOptions.Senders, must send the operations.
func TestBatcherWidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Second}
		b := NewBatcher(BatcherOptions[int]{Limits: Limits[int]{Count: count(2)}, Senders: 2, Send: s.send})
		defer b.Close()
		b.Add(0, 1, 2, 3, 4, 5, 6)
		time.Sleep(500 * time.Millisecond)
		if got, want := s.got(), []string{"[0 1]", "[2 3]"}; !slices.Equal(got, want) {
			t.Errorf("batches %v, want %v", got, want)
		}
		time.Sleep(time.Second)
		if got, want := s.got(), []string{"[0 1]", "[2 3]", "[4 5]", "[6]"}; !slices.Equal(got, want) || s.most != 2 {
			t.Errorf("batches %v, %d at a time, want %v, 2 at a time", got, s.most, want)
		}
	})
}

// TestBatcherHandOn checks that only one other sender replaces the sender of a long batch, even if
// handOn is called twice.
func TestBatcherHandOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Second}
		release := make(chan struct{})
		slow := func(batch []int, handOn func()) {
			if batch[0] >= 0 {
				s.send(batch, handOn)
				return
			}
			handOn()
			handOn()
			<-release
		}
		b := NewBatcher(BatcherOptions[int]{Limits: Limits[int]{Count: count(1)}, Senders: 1, Send: slow})
		defer b.Close()
		b.Add(-1)
		b.Add(1, 2, 3)
		time.Sleep(3500 * time.Millisecond)
		if got := s.got(); len(got) != 3 || s.most != 1 {
			t.Errorf("beside a slow batch: %v, %d at a time, want three, one after the other", got, s.most)
		}
		close(release)
		synctest.Wait()
		b.Add(4, 5)
		time.Sleep(3 * time.Second)
		if got := s.got(); len(got) != 5 || s.most != 1 {
			t.Errorf("after it: %v, %d at a time, want five, one after the other", got, s.most)
		}
	})
}

// TestBatcherClose checks that Close waits until all operations are answered, and that Add then
// refuses operations. The synctest bubble checks that no goroutine is left.
func TestBatcherClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Second}
		b := NewBatcher(BatcherOptions[int]{Limits: Limits[int]{Count: count(1)}, Senders: 2, Send: s.send})
		b.Add(1, 2, 3, 4, 5)
		b.Close()
		if got := s.got(); len(got) != 5 {
			t.Errorf("sent %v when it is closed, want all five", got)
		}
		if b.Add(6) {
			t.Error("it is taken after Close")
		}
		b.Close()
		NewBatcher(BatcherOptions[int]{Senders: 1, Send: s.send}).Close()
	})
}

type request struct {
	Ticket
	answers int
}

// TestBatcherStorm lets callers give up their requests at random moments. It checks that each
// request is either answered exactly once or never sent.
func TestBatcherStorm(t *testing.T) {
	b := NewBatcher(BatcherOptions[*request]{
		Limits:  Limits[*request]{Count: count(7), Claim: (*request).Claim},
		Senders: 3,
		Send: func(batch []*request, handOn func()) {
			if len(batch) == 3 {
				handOn()
			}
			for _, r := range batch {
				r.answers++
				r.End()
			}
		},
	})
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for j := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%3 == 0 {
					go cancel()
				}
				r := &request{}
				r.Open()
				if !b.Add(r) {
					t.Error("refused")
				}
				outcome := r.Wait(ctx)
				cancel()
				if outcome == Unknown {
					<-r.done
				}
				if want := 1; outcome == NotSent && r.answers != 0 || outcome != NotSent && r.answers != want {
					t.Errorf("outcome %v with %d answers", outcome, r.answers)
				}
			}
		})
	}
	callers.Wait()
	b.Close()
}
