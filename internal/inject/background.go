package inject

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Background has the work that faults do in the background, such as repeated restarts. Each piece
// of work has an owner, which can be any comparable value. Any goroutine may call the methods.
type Background struct {
	mu   sync.Mutex
	ends map[any][]func() error
}

// Begin notes that an owner, the value by, has begun some work. End(by) calls the function end.
func (b *Background) Begin(by any, end func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends == nil {
		b.ends = map[any][]func() error{}
	}
	b.ends[by] = append(b.ends[by], end)
}

// End ends all work of one owner, the value by, and returns when the work has ended.
func (b *Background) End(by any) error {
	b.mu.Lock()
	ends := b.ends[by]
	delete(b.ends, by)
	b.mu.Unlock()
	return Each(ends, func(end func() error) error { return end() })
}

func (b *Background) EndBackground() error {
	b.mu.Lock()
	left := slices.Collect(maps.Keys(b.ends))
	b.mu.Unlock()
	return Each(left, b.End)
}

// WhileRunning calls the function turn repeatedly in the background, until turn fails or End(by) is
// called. End(by) waits until turn has returned, and returns its error.
func (b *Background) WhileRunning(by any, turn func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var err error
	running.Go(func() {
		for ctx.Err() == nil && err == nil {
			err = turn(ctx)
		}
	})
	b.Begin(by, func() error {
		cancel()
		running.Wait()
		return err
	})
}

// Later calls the function do once: after the time d, or in End(by) if End is called before that.
func (b *Background) Later(by any, d time.Duration, do func() error) {
	once := sync.OnceValue(do)
	timer := time.AfterFunc(d, func() { _ = once() }) // End reports its error
	b.Begin(by, func() error {
		timer.Stop()
		return once()
	})
}

func Each[T any](of []T, do func(T) error) error {
	var errs []error
	for _, x := range of {
		errs = append(errs, do(x))
	}
	return errors.Join(errs...)
}

// AtOnce calls the function do concurrently with each number
// from 0 to n-1, waits for all calls, and joins their errors.
func AtOnce(n int, do func(i int) error) error {
	errs := make([]error, n)
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { errs[i] = do(i) })
	}
	work.Wait()
	return errors.Join(errs...)
}
