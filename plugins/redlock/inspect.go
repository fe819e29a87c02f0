package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Inspect returns the owner that has the lock called name on a majority of nodes; see driver.Lock.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	var h driver.Holder
	err := b.do(ctx, b.inspect("inspect", name, &h))[0].Err
	return h, err
}

// inspect returns an operation that stores the lock's holder in h. The operation waits for every
// node's vote, because the node with the queue, which knows the waiters, may answer last.
func (b *Backend) inspect(verb, name string, h *driver.Holder) *operation {
	o := b.operation(verb, driver.Request{Name: name}, kindInspect, func(o *operation) error {
		votes := o.now.result()
		if count(votes, is(seen)) < b.quorum {
			return b.unavailable(votes)
		}
		*h = b.holder(name, votes)
		return nil
	})
	o.now.quorum = 0
	return o
}

// holder returns the owner that has the lock, or may have it, on a majority of nodes. A node that
// did not vote, or whose grant has no token, counts for the owner that most other nodes show.
func (b *Backend) holder(name string, votes []vote) driver.Holder {
	shown := slices.DeleteFunc(slices.Clone(votes), func(v vote) bool {
		// A grant without a token may still be undone, so it does not show a holder.
		return v.answer != seen || strings.HasPrefix(v.raw, v.holder(name).Owner+" 0 ")
	})
	most := mostVotes(holders(name, shown))
	if len(most) == 0 || len(most)+len(votes)-len(shown) < b.quorum {
		return driver.Holder{}
	}
	h := b.agree(most)
	for _, v := range votes {
		h.Waiters = max(h.Waiters, v.waiters)
	}
	return h
}

func holders(name string, votes []vote) map[string][]driver.Holder {
	by := map[string][]driver.Holder{}
	for _, v := range votes {
		if h := v.holder(name); h.Held() {
			by[h.Owner] = append(by[h.Owner], h)
		}
	}
	return by
}

// mostVotes returns the entries of the owner that most nodes show.
func mostVotes(by map[string][]driver.Holder) (most []driver.Holder) {
	for owner, hs := range by {
		if len(hs) > len(most) || len(hs) == len(most) && owner < most[0].Owner {
			most = hs
		}
	}
	return most
}

// agree combines the entries that several nodes show for one owner into one Holder. The value is the
// one that most nodes have. The TTL is the time until only a minority of nodes has the lease.
func (b *Backend) agree(hs []driver.Holder) (h driver.Holder) {
	if len(hs) == 0 {
		return h
	}
	slices.SortFunc(hs, func(a, b driver.Holder) int { return cmp.Compare(b.TTL, a.TTL) })
	h = hs[0]
	if ttl := hs[min(b.quorum, len(hs))-1].TTL; ttl >= 0 {
		h.TTL = ttl
	}
	seen := map[string]int{}
	for _, o := range hs {
		h.Token = max(h.Token, o.Token)
		seen[string(o.Value)]++
		if seen[string(o.Value)] > seen[string(h.Value)] {
			h.Value = o.Value
		}
	}
	return h
}

// Proclaim replaces the published value on a majority of nodes; see
// driver.Lock. An unreachable node keeps the old value until the lease ends.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	o := b.operation("proclaim", r, kindProclaim, (*operation).verdict)
	o.now.rest = string(r.Value)
	return b.do(ctx, o)[0].Err
}

// observeEvery is the interval at which a host reads the locks that its callers observe.
const observeEvery = 100 * time.Millisecond

// Observe follows the holder of the lock called name; see driver.Observer. It asks all nodes ten
// times a second, in one batch for all locks that this host observes.
//
// Note: do not replace the polling by messages from nodes. A node cannot know whether the holder on
// a majority has changed.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return b.observers.Follow(ctx, name, emit)
}

func (b *Backend) look(names []string) map[string]kit.Seen {
	holders, ops := make([]driver.Holder, len(names)), make([]*operation, len(names))
	for i, name := range names {
		ops[i] = b.inspect("observe", name, &holders[i])
	}
	seen := make(map[string]kit.Seen, len(names))
	for i, r := range b.do(b.background, ops...) {
		seen[names[i]] = kit.Seen{Holder: holders[i], Err: r.Err}
	}
	return seen
}

// List calls emit for each held lock; see driver.Admin. It reads the keys of every voting
// node by SCAN, which does not block the node, and then asks all nodes about each lock.
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

// names returns the names of all locks on the scanned nodes. It fails if it can scan only a
// minority of the nodes, because the result must include every held lock.
func (b *Backend) names(ctx context.Context, prefix string) (map[string]struct{}, error) {
	found, causes := make([]map[string]struct{}, len(b.nodes)), make([]error, len(b.nodes))
	var work sync.WaitGroup
	for i, n := range b.nodes {
		if !n.votes() {
			causes[i] = errors.New(n.describe())
			continue
		}
		work.Go(func() { found[i], causes[i] = n.store.Names(ctx, prefix) })
	}
	work.Wait()
	names, scanned := map[string]struct{}{}, 0
	for i, err := range causes {
		if err == nil {
			maps.Copy(names, found[i])
			scanned++
		}
	}
	if scanned < b.quorum {
		return nil, fmt.Errorf("%w: %d of %d nodes could be scanned: %w", driver.ErrUnavailable, scanned, len(b.nodes), errors.Join(causes...))
	}
	return names, nil
}
