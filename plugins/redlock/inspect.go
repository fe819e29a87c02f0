package redlock

import (
	"context"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// Inspect returns who holds name by a majority; see driver.Lock.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	var h driver.Holder
	err := b.do(ctx, b.inspect("inspect", name, &h))[0].Err
	return h, err
}

// inspect finds out who holds name. It waits for every node: the one with the
// queue may be the last.
func (b *Backend) inspect(verb, name string, h *driver.Holder) *operation {
	o := b.operation(verb, driver.Request{Name: name}, kindInspect, "")
	o.now.quorum = 0
	return o.decided(func() error {
		votes := o.now.result()
		if count(votes, is(seen)) < b.quorum {
			return b.unavailable(votes)
		}
		*h = b.holder(name, votes)
		return nil
	})
}

// holder is who holds name as the votes have it: the owner that a majority
// shows, or would show if the nodes that did not vote had it too.
func (b *Backend) holder(name string, votes []vote) driver.Holder {
	shown := slices.DeleteFunc(slices.Clone(votes), func(v vote) bool {
		// A grant that has no token yet may come to nothing.
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

// holders gathers what the votes say about who holds name: by owner, from each
// node.
func holders(name string, votes []vote) map[string][]driver.Holder {
	by := map[string][]driver.Holder{}
	for _, v := range votes {
		if h := v.holder(name); h.Held() {
			by[h.Owner] = append(by[h.Owner], h)
		}
	}
	return by
}

// mostVotes is what is said about the owner with most nodes, nil when there is
// none.
func mostVotes(by map[string][]driver.Holder) (most []driver.Holder) {
	for owner, hs := range by {
		if len(hs) > len(most) || len(hs) == len(most) && owner < most[0].Owner {
			most = hs
		}
	}
	return most
}

// merge makes one holder of what several nodes say about one owner.
func merge(hs []driver.Holder) (h driver.Holder) {
	for i, o := range hs {
		if i == 0 {
			h = o
		}
		h.Token = max(h.Token, o.Token)
		h.TTL = max(h.TTL, o.TTL)
	}
	return h
}

// agree is merge with the value that most nodes have, and how long a majority of
// all will have it.
func (b *Backend) agree(hs []driver.Holder) driver.Holder {
	h := merge(hs)
	seen := map[string]int{}
	for _, o := range hs {
		seen[string(o.Value)]++
		if seen[string(o.Value)] > seen[string(h.Value)] {
			h.Value = o.Value
		}
	}
	slices.SortFunc(hs, func(a, b driver.Holder) int { return int(b.TTL - a.TTL) })
	if i := min(b.quorum, len(hs)) - 1; hs[i].TTL >= 0 {
		h.TTL = hs[i].TTL
	}
	return h
}
