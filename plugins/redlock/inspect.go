package redlock

import (
	"context"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Inspect returns who holds name by a majority; see driver.Lock.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	t := &inspection{call: b.call("inspect", driver.Request{Name: name})}
	res := b.do(ctx, t)[0]
	return t.holder, res.Err
}

type inspection struct {
	call
	holder driver.Holder
}

// first waits for every node: the one with the queue may be the last.
func (t *inspection) first() *ballot {
	x := t.ask(kindInspect, "")
	x.quorum = 0
	return x
}

func (t *inspection) next() *ballot {
	votes := t.now.result()
	if count(votes, is(done)) < t.b.quorum {
		t.err = t.b.unavailable(votes)
		return nil
	}
	t.holder = t.b.holder(t.r.Name, votes)
	return nil
}

// holder is who holds name as the votes have it: the owner that a majority
// shows, or would show if the nodes that did not vote had it too.
func (b *Backend) holder(name string, votes []vote) driver.Holder {
	by := map[string][]driver.Holder{}
	silent, waiters := 0, 0
	for _, v := range votes {
		if v.answer != done {
			silent++
			continue
		}
		waiters = max(waiters, v.waiters)
		switch h := redisnode.ParseVote(name, v.raw, v.ms, -1); {
		case !h.Held():
		case b.fenced() && strings.HasPrefix(v.raw, h.Owner+" 0 "):
			silent++ // the grant has no token yet, and may come to nothing
		default:
			by[h.Owner] = append(by[h.Owner], h)
		}
	}
	var most []driver.Holder
	for _, hs := range by {
		if len(hs) > len(most) {
			most = hs
		}
	}
	if len(most) == 0 || len(most)+silent < b.quorum {
		return driver.Holder{}
	}
	h := b.agree(most)
	h.Waiters = waiters
	return h
}

// agree makes one holder of what several nodes say about one owner: the value
// that most of them have, and how long a majority of all will have it.
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
