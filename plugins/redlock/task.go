package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// task is one operation: a ballot, and more of them until it is finished.
type task interface {
	// first returns the first ballot.
	first() *ballot
	// next is called when the last ballot is decided, and returns one more, or
	// nil when result is known.
	next() *ballot
	// result is also called when the caller gives up, with the reason.
	result(gaveUp error) driver.Result
}

// do carries out tasks, each ballot of all of them together, and returns their
// results. When ctx ends it returns at once; what was sent goes on.
func (b *Backend) do(ctx context.Context, tasks ...task) []driver.Result {
	results := make([]driver.Result, len(tasks))
	running := make([]*ballot, len(tasks))
	var ballots []*ballot
	if len(tasks) == 1 {
		ballots = running
	}
	for i, t := range tasks {
		running[i] = t.first()
	}
	for left := len(tasks); left > 0; {
		if len(tasks) > 1 {
			ballots = ballots[:0]
			for _, x := range running {
				if x != nil {
					ballots = append(ballots, x)
				}
			}
		}
		refused := b.dispatch(ctx, ballots)
		for i, t := range tasks {
			if running[i] == nil {
				continue
			}
			err := refused
			if err == nil {
				err = await(ctx, running[i])
			}
			if err == nil {
				running[i] = t.next()
			}
			if err != nil || running[i] == nil {
				running[i] = nil
				results[i] = t.result(err)
				left--
			}
		}
	}
	return results
}

// dispatch sends ballots unless it is too late already.
func (b *Backend) dispatch(ctx context.Context, ballots []*ballot) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return b.send(ballots...)
}

func await(ctx context.Context, b *ballot) error {
	select {
	case <-b.decided:
		return nil
	default:
	}
	select {
	case <-b.decided:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: no majority yet: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// call is what every task has.
type call struct {
	b    *Backend
	op   string
	r    driver.Request
	sent time.Time
	now  *ballot // the last one that was sent
	err  error
}

func (b *Backend) call(op string, r driver.Request) call {
	return call{b: b, op: op, r: r, sent: time.Now()}
}

// ask makes the next ballot. It is decided with a majority.
func (c *call) ask(k kind, rest string) *ballot {
	c.now = &ballot{
		kind: k, name: c.r.Name, key: c.b.keys.Lock(c.r.Name), owner: c.r.Owner,
		token: c.r.Token, rest: rest, quorum: c.b.quorum,
	}
	return c.now
}

func (c *call) result(gaveUp error) driver.Result {
	if gaveUp != nil {
		c.err = gaveUp
	}
	return driver.Result{Err: c.wrap(c.err)}
}

func (c *call) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redlock: %s %q: %w", c.op, c.r.Name, err)
}

// verdict is what the votes on a held lease come to: nil with a majority.
func (c *call) verdict() error {
	votes := c.now.result()
	switch {
	case count(votes, vote.no) > len(votes)-c.b.quorum:
		return c.lost(votes)
	case count(votes, vote.yes) < c.b.quorum:
		return c.b.unavailable(votes)
	}
	return nil
}

// lost is the error for a lease that has no majority any more.
func (c *call) lost(votes []vote) error {
	h, _ := plurality(holders(c.r.Name, votes))
	if h.Owner == c.r.Owner && c.r.Owner != "" {
		h = driver.Holder{} // what is left of that lease itself
	}
	return &driver.NotHeldError{Holder: h}
}

// late reports whether the votes came so late that nothing worth having is left of
// the TTL. Package core counts its deadline in the same way.
func (c *call) late() bool {
	drift := c.r.TTL/100 + 2*time.Millisecond
	return time.Since(c.sent)+drift >= c.r.TTL
}

// noQuorum is why too few nodes voted. Its nodes say what is wrong with each.
type noQuorum struct {
	sentinel error
	voted    int
	quorum   int
	total    int
	causes   []string
	fresh    bool // some nodes are in quarantine
}

func (e *noQuorum) Error() string {
	s := fmt.Sprintf("%v: %d of %d nodes vote and %d are needed", e.sentinel, e.voted, e.total, e.quorum)
	if len(e.causes) > 0 {
		s += " (" + strings.Join(e.causes, "; ") + ")"
	}
	if e.fresh {
		s += `; "lockplugin-redlock init" lets a fresh cluster vote at once`
	}
	return s
}

func (e *noQuorum) Unwrap() error { return e.sentinel }

// nothingLeft is a failure that has left nothing in any node: no node got the
// request, or each that did has confirmed that it is undone. To the caller
// that is the same, so it wraps driver.ErrNotSent.
type nothingLeft struct{ err error }

func (e *nothingLeft) Error() string   { return e.err.Error() + ", and nothing is left of the attempt" }
func (e *nothingLeft) Unwrap() []error { return []error{e.err, driver.ErrNotSent} }

// unavailable explains votes that are no majority for or against.
func (b *Backend) unavailable(votes []vote) error {
	e := &noQuorum{sentinel: driver.ErrUnavailable, quorum: b.quorum, total: len(b.nodes)}
	denied := 0
	for i, v := range votes {
		switch v.answer {
		case unsent, unknown, quarantined:
		case missing:
			e.causes = append(e.causes, b.nodes[i].addr+": no reply yet")
			continue
		default:
			e.voted++
			continue
		}
		if errors.Is(v.err, driver.ErrDenied) {
			denied++
		}
		e.fresh = e.fresh || v.answer == quarantined
		cause := b.nodes[i].describe()
		if cause == "" && v.err != nil {
			cause = fmt.Sprintf("%s: %v", b.nodes[i].addr, v.err)
		}
		if cause != "" {
			e.causes = append(e.causes, cause)
		}
	}
	if len(b.nodes)-denied < b.quorum {
		e.sentinel = driver.ErrDenied
	}
	return e
}

// neverSent reports whether no node got the request, nor will.
func neverSent(votes []vote) bool {
	return count(votes, func(v vote) bool { return v.answer == unsent || v.answer == quarantined }) == len(votes)
}

// holders gathers what the votes say about who holds name: by owner, with how
// many nodes.
func holders(name string, votes []vote) map[string][]driver.Holder {
	by := map[string][]driver.Holder{}
	for _, v := range votes {
		if v.answer == heldBy || v.answer == notHeld {
			if h := redisnode.ParseVote(name, v.raw, v.ms, -1); h.Held() {
				by[h.Owner] = append(by[h.Owner], h)
			}
		}
	}
	return by
}

// plurality is the owner with most nodes, as one holder. The zero Holder is
// that of no votes.
func plurality(by map[string][]driver.Holder) (most driver.Holder, nodes int) {
	for owner, hs := range by {
		if len(hs) > nodes || len(hs) == nodes && owner < most.Owner {
			most, nodes = merge(hs), len(hs)
		}
	}
	return most, nodes
}

// merge makes one holder of what several nodes say about one owner.
func merge(hs []driver.Holder) driver.Holder {
	h := hs[0]
	for _, o := range hs[1:] {
		h.Token = max(h.Token, o.Token)
		h.TTL = max(h.TTL, o.TTL)
	}
	return h
}
