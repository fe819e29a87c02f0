package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
)

// List tells of each held lock; see driver.Admin. It scans the keys of every
// node that votes, without blocking it, and then asks all about each name.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	names, err := b.names(ctx, prefix)
	if err != nil {
		return fmt.Errorf("redlock: list %q: %w", prefix, err)
	}
	for name := range names {
		h, err := b.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if h.Held() && !emit(h) {
			return nil
		}
	}
	return nil
}

// names are those that a majority of nodes, scanned at the same time, know
// between them: every held lock is among them.
func (b *Backend) names(ctx context.Context, prefix string) (map[string]struct{}, error) {
	names := map[string]struct{}{}
	var mu sync.Mutex
	var causes error
	scanned := 0
	var work sync.WaitGroup
	for _, n := range b.nodes {
		if !n.votes() {
			causes = errors.Join(causes, errors.New(n.describe()))
			continue
		}
		work.Go(func() {
			found, err := n.store.Names(ctx, prefix)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				causes = errors.Join(causes, err)
				return
			}
			maps.Copy(names, found)
			scanned++
		})
	}
	work.Wait()
	if scanned < b.quorum {
		return nil, fmt.Errorf("%w: %d of %d nodes could be scanned: %w", driver.ErrUnavailable, scanned, len(b.nodes), causes)
	}
	return names, nil
}
