package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// operation is one call of a method of Backend, or one element of a call of Batch. It sends
// requests to the nodes, one after the other, until its result is known.
type operation struct {
	b    *Backend
	verb string
	r    driver.Request
	sent time.Time
	now  *quorumRequest // the last request that was made
	// next is called when the request in the now field is decided. It either makes another request and
	// returns true, or stores the result in err and token and returns false.
	next  func() (more bool)
	over  bool
	token uint64
	err   error
}

// operation returns an operation that sends one request, of kind k. Its result is that of the
// function end.
func (b *Backend) operation(verb string, r driver.Request, k kind, end func(*operation) error) *operation {
	o := &operation{b: b, verb: verb, r: r, sent: time.Now()}
	o.next = func() bool {
		o.err = end(o)
		return false
	}
	o.ask(k, "")
	return o
}

// ask makes the operation's next request, which a majority of votes decides.
func (o *operation) ask(k kind, rest string) *quorumRequest {
	o.now = &quorumRequest{
		kind: k, key: o.b.keys.Lock(o.r.Name), owner: o.r.Owner,
		token: o.r.Token, rest: rest, quorum: o.b.quorum,
	}
	return o.now
}

func (o *operation) refuse(err error) *operation {
	o.over, o.err = true, err
	return o
}

// Batch executes many operations. Each node gets the operations' requests in as few scripts as
// possible; see driver.Batcher.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	begun := make([]*operation, len(ops))
	for i, op := range ops {
		switch op.Kind {
		case driver.OpAcquire:
			begun[i] = b.acquire(op.Request)
		case driver.OpRenew:
			begun[i] = b.renew(op.Request)
		case driver.OpRelease:
			begun[i] = b.release(op.Request)
		case driver.OpWithdraw:
			begun[i] = b.withdraw(op.Request)
		default:
			o := &operation{b: b, verb: "batch", r: op.Request}
			begun[i] = o.refuse(fmt.Errorf("%w: operation %d of a batch", driver.ErrInvalid, op.Kind))
		}
	}
	return b.do(ctx, begun...)
}

// do runs operations. It sends the first requests of all operations together, waits for the votes,
// then sends their second requests, and so on. When ctx ends, do returns, but requests that were
// sent may still take effect.
func (b *Backend) do(ctx context.Context, ops ...*operation) []driver.Result {
	requests := make([]*quorumRequest, 0, len(ops))
	for {
		requests = requests[:0]
		for _, o := range ops {
			if !o.over {
				requests = append(requests, o.now)
			}
		}
		if len(requests) == 0 {
			break
		}
		refused := b.dispatch(ctx, requests)
		for _, o := range ops {
			if o.over {
				continue
			}
			err := refused
			if err == nil {
				err = await(ctx, o.now)
			}
			switch {
			case err != nil:
				o.refuse(err)
			case !o.next():
				o.over = true
			}
		}
	}
	results := make([]driver.Result, len(ops))
	for i, o := range ops {
		results[i] = o.result()
	}
	return results
}

func (o *operation) result() driver.Result {
	if o.err != nil {
		return driver.Result{Err: fmt.Errorf("redlock: %s %q: %w", o.verb, o.r.Name, o.err)}
	}
	return driver.Result{Token: o.token}
}

func (b *Backend) dispatch(ctx context.Context, requests []*quorumRequest) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return b.send(requests...)
}

func await(ctx context.Context, b *quorumRequest) error {
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

// verdict returns an error if a majority of nodes does not have the lease, or if only a minority of
// nodes has done the request.
func (o *operation) verdict() error {
	votes := o.now.result()
	yes, no := count(votes, vote.yes), count(votes, vote.no)
	if o.now.givesUp() {
		yes += no // a node without the lease need not end it
	}
	switch {
	case no > len(votes)-o.b.quorum:
		return o.lost(votes)
	case yes < o.b.quorum:
		return o.b.unavailable(votes)
	}
	return nil
}

// lost returns the error for a lease that a majority of nodes no longer has.
func (o *operation) lost(votes []vote) error {
	h := o.b.agree(mostVotes(holders(o.r.Name, votes)))
	h.Value = nil // a refusal has only the beginning of the value
	if h.Owner == o.r.Owner && o.r.Owner != "" {
		h = driver.Holder{} // some nodes still show the lost lease
	}
	return &driver.NotHeldError{Holder: h}
}

// late reports whether the TTL, less a margin for clock drift, has passed since the request was
// sent. Package core computes a lease's deadline in the same way.
func (o *operation) late() bool {
	drift := o.r.TTL/100 + 2*time.Millisecond
	return time.Since(o.sent)+drift >= o.r.TTL
}

func (o *operation) tooLate() error {
	return fmt.Errorf("%w: votes took %v of TTL %v", driver.ErrUnavailable, time.Since(o.sent), o.r.TTL)
}

// nothingLeft is the error of a failed acquire that left nothing on any node. Each node either
// never got the request or has confirmed the undo. The error wraps driver.ErrNotSent, because for
// the caller this is as if nothing had been sent.
type nothingLeft struct{ err error }

func (e *nothingLeft) Error() string   { return e.err.Error() + ", and nothing is left of the attempt" }
func (e *nothingLeft) Unwrap() []error { return []error{e.err, driver.ErrNotSent} }

// unavailable returns the error for a request that a majority neither accepted nor refused.
func (b *Backend) unavailable(votes []vote) error {
	voted, denied, fresh := 0, 0, false
	var causes []string
	for i, v := range votes {
		cause := ""
		switch {
		case v.answer == missing:
			cause = b.nodes[i].addr + ": no reply yet"
		case !v.absent():
			voted++
		default:
			if cause = b.nodes[i].describe(); cause == "" && v.err != nil {
				cause = fmt.Sprintf("%s: %v", b.nodes[i].addr, v.err)
			}
		}
		if errors.Is(v.err, driver.ErrDenied) {
			denied++
		}
		fresh = fresh || v.answer == quarantined
		if cause != "" {
			causes = append(causes, cause)
		}
	}
	why := driver.ErrUnavailable
	if len(b.nodes)-denied < b.quorum {
		why = driver.ErrDenied
	}
	text := fmt.Sprintf("%d of %d nodes vote and %d are needed", voted, len(b.nodes), b.quorum)
	if len(causes) > 0 {
		text += " (" + strings.Join(causes, "; ") + ")"
	}
	if fresh {
		text += fmt.Sprintf("; %q lets a fresh cluster vote at once", b.initCommand())
	}
	return fmt.Errorf("%w: %s", why, text)
}
