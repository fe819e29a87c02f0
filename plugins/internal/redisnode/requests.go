package redisnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const maxPerTrip = 1024

// item is one queued request: a list of operations, or a call of a script other than operate.lua.
type item struct {
	kit.Ticket
	ops     []op
	replies []driver.Result

	call  *invocation
	reply any
	err   error

	deadline time.Time // zero if there is no deadline

	// ctx and finish are set only if no caller waits for the item; see Start.
	ctx    context.Context
	finish func(driver.Result)

	// op1 and reply1 are the memory for ops and replies if there is only one operation.
	op1    [1]op
	reply1 [1]driver.Result
}

// size returns the number of the item's operations, or 1 for a call of a script. An item's
// operations are never split over batches, so they stay in order.
func (it *item) size() int { return max(1, len(it.ops)) }

func (it *item) end() {
	if it.finish != nil {
		it.finish(it.replies[0])
		return
	}
	it.End()
}

// do queues the item and waits until it is answered or ctx ends.
//
// Another goroutine sends the item. So simultaneous requests share scripts and round trips, and the
// caller can return as soon as ctx ends, before the reply comes.
func (n *Node) do(ctx context.Context, it *item) error {
	if ctx.Err() != nil {
		return unsent(ctx)
	}
	it.deadline, _ = ctx.Deadline()
	it.Open()
	if !n.requests.Add(it) {
		return driver.ErrClosed
	}
	switch it.Wait(ctx) {
	case kit.Answered:
		return nil
	case kit.NotSent:
		return unsent(ctx)
	}
	return fmt.Errorf("%w: no reply yet: %w", driver.ErrUnavailable, ctx.Err())
}

func unsent(ctx context.Context) error {
	return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, ctx.Err())
}

// serve sends and answers items. It does not send an item from Start if the item's ctx has ended.
func (n *Node) serve(items []*item, _ func()) {
	due := items[:0:len(items)]
	for _, it := range items {
		if it.finish != nil && it.ctx.Err() != nil {
			it.replies[0].Err = unsent(it.ctx)
			it.end()
			continue
		}
		due = append(due, it)
	}
	if len(due) == 0 {
		return
	}
	sent := time.Now()
	n.roundTrip(due)
	n.distance.Took(time.Since(sent))
	for _, it := range due {
		n.updateWaiters(it, sent)
		it.end()
	}
}

// updateWaiters records what the replies say about the owners' places in the store's queues.
func (n *Node) updateWaiters(it *item, sent time.Time) {
	for i := range it.ops {
		switch o := &it.ops[i]; {
		case o.kind == "w", o.kind == "a" && it.replies[i].Err == nil:
			n.Wakeups.Leave(o.id)
		case o.kind == "a" && errors.Is(it.replies[i].Err, driver.ErrHeld):
			n.Wakeups.refused(o.id, sent, o.queued)
		}
	}
}

func (n *Node) roundTrip(items []*item) {
	ctx, cancel := tripContext(items)
	defer cancel()
	parts := n.parts(items)
	calls := make([]*invocation, 0, len(parts)+len(items))
	renewed := false
	for _, p := range parts {
		calls = append(calls, p.invocation)
		renewed = renewed || p.renewed
	}
	for _, it := range items {
		if it.call != nil {
			calls = append(calls, it.call)
		}
	}
	var unsafe error
	if len(calls) > 0 {
		unsafe = n.exec(ctx, calls, renewed)
	}
	for _, p := range parts {
		p.deliver(unsafe)
	}
	for _, it := range items {
		if it.call != nil {
			it.reply, it.err = it.call.cmd.Result()
			it.err = Explain(it.err)
		}
	}
}

// tripContext returns a context that ends at the last of the callers' deadlines. If a caller has no
// deadline, the context does not end, and only the connection's read timeout applies.
func tripContext(items []*item) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, it := range items {
		if it.deadline.IsZero() {
			return context.Background(), func() {}
		}
		if it.deadline.After(last) {
			last = it.deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// exec sends calls of scripts. If the server does not know a script, exec sends the call again with
// the script's text. If a reply says that the server does not serve, exec sends the call again over
// another connection. In both cases the first try has changed nothing. The returned error only says
// that replicas may lack the changes. Each call has its own error.
func (n *Node) exec(ctx context.Context, calls []*invocation, renewed bool) error {
	var before error // the error about replicas, for the calls that are not repeated
	for again := false; ; again = true {
		sent := time.Now()
		unsafe := errors.Join(before, n.send(ctx, calls, false, renewed))
		var unknown []*invocation
		for _, c := range calls {
			if c.unknownScript() {
				unknown = append(unknown, c)
			}
		}
		if len(unknown) > 0 {
			unsafe = errors.Join(unsafe, n.send(ctx, unknown, true, renewed))
		}
		var astray []*invocation
		for _, c := range calls {
			if n.astray(c, sent) {
				astray = append(astray, c)
			}
		}
		if len(astray) == 0 || again {
			return unsafe
		}
		if len(astray) < len(calls) {
			before = unsafe
		}
		calls = astray
	}
}

// astray reports whether to send the call c again, because the reply says that the server does not
// serve. In this case, or if the server was silent too long, astray gives up the connections that
// were made before the call was sent.
func (n *Node) astray(c *invocation, sent time.Time) bool {
	if n.opts.Links == nil {
		return false
	}
	err := c.cmd.Err()
	if err == nil {
		err = AstrayInside(c.cmd.Val())
	}
	away := Astray(err)
	if away || silentServer(err) && time.Since(sent) >= n.opts.Silence {
		n.opts.Links.Leave(sent)
	}
	return away
}

// AstrayInside returns the first error in a script's reply for which [Astray] returns true, or nil.
// Such an error did not stop the script.
func AstrayInside(reply any) error {
	all := FieldsOf(reply)
	for _, one := range all {
		if f := FieldsOf(one); f.Number(0) == CodeRefused && Astray(Refusal(f.Text(1))) {
			return Refusal(f.Text(1))
		}
	}
	if all.Number(0) == CodeRefused && Astray(Refusal(all.Text(1))) {
		return Refusal(all.Text(1))
	}
	return nil
}

func (n *Node) send(ctx context.Context, calls []*invocation, whole, renewed bool) error {
	replicas := n.opts.WaitReplicas
	if len(calls) == 1 && (replicas == 0 || !renewed) {
		calls[0].send(ctx, n.client, whole)
		return nil
	}
	pipe := n.client.Pipeline()
	for _, c := range calls {
		c.send(ctx, pipe, whole)
	}
	if replicas == 0 || !renewed {
		flush(ctx, pipe, calls)
		return nil
	}
	ack := pipe.Do(ctx, "wait", replicas, n.opts.WaitTimeout.Milliseconds())
	flush(ctx, pipe, calls)
	got, err := ack.Int64()
	if err != nil {
		return fmt.Errorf("%w: not known whether replicas have it (WAIT): %w", driver.ErrUnavailable, err)
	}
	if got < int64(replicas) {
		return fmt.Errorf("%w: %d of %d replicas have it after %v",
			driver.ErrUnavailable, got, replicas, n.opts.WaitTimeout)
	}
	return nil
}

// flush sends a pipeline. If go-redis gets no connection, Exec returns an error that no call has.
// So flush stores this error in each call without a result.
func flush(ctx context.Context, pipe goredis.Pipeliner, calls []*invocation) {
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		if err != nil && c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
}
