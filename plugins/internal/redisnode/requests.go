package redisnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	results []driver.Result
	call    *invocation

	ctx    context.Context     // the caller's
	finish func(driver.Result) // set only if no caller waits for the item; see Start

	// op1 and result1 are the memory for ops and results if there is only one operation.
	op1     [1]op
	result1 [1]driver.Result
}

// size returns the number of the item's operations, or 1 for a call of a script. An item's
// operations are never split over batches, so they stay in order.
func (it *item) size() int { return max(1, len(it.ops)) }

func (it *item) end() {
	if it.finish != nil {
		it.finish(it.results[0])
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
	it.ctx = ctx
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

// serve sends and answers items.
func (n *Node) serve(items []*item, _ func()) {
	sent := time.Now()
	if calls := n.calls(items); len(calls) > 0 {
		ctx, cancel := tripContext(items)
		unsafe := n.exec(ctx, calls)
		cancel()
		n.distance.Took(time.Since(sent))
		for _, c := range calls {
			if c.ops != nil {
				c.deliver(unsafe)
			}
		}
	}
	for _, it := range items {
		n.updateWaiters(it, sent)
		it.end()
	}
}

// updateWaiters records what the replies say about the owners' places in the store's queues.
func (n *Node) updateWaiters(it *item, sent time.Time) {
	for i := range it.ops {
		switch o := &it.ops[i]; {
		case o.kind == "w" && !errors.Is(o.result.Err, driver.ErrNotSent), o.kind == "a" && o.result.Err == nil:
			n.Wakeups.Leave(o.id)
		case o.kind == "a" && errors.Is(o.result.Err, driver.ErrHeld):
			n.Wakeups.refused(o.id, sent, o.queued)
		}
	}
}

// tripContext returns a context that ends at the last of the callers' deadlines. If a caller has no
// deadline, the context does not end, and only the connection's read timeout applies.
func tripContext(items []*item) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, it := range items {
		at, ok := it.ctx.Deadline()
		if !ok {
			return context.Background(), func() {}
		}
		if at.After(last) {
			last = at
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// exec sends calls of scripts. If the server does not know a script, exec sends the call again with
// the script's text. If a reply says that the server does not serve, exec sends the call again over
// another connection. In both cases the first try has changed nothing. The returned error only says
// that replicas may lack the changes. Each call has its own error.
func (n *Node) exec(ctx context.Context, calls []*invocation) error {
	var before error // the error about replicas, for the calls that are not repeated
	for again := false; ; again = true {
		sent := time.Now()
		unsafe := errors.Join(before, n.send(ctx, calls, false))
		if unknown := only(calls, (*invocation).unknownScript); len(unknown) > 0 {
			unsafe = errors.Join(unsafe, n.send(ctx, unknown, true))
		}
		astray := only(calls, func(c *invocation) bool { return n.astray(c, sent) })
		if len(astray) == 0 || again {
			return unsafe
		}
		if len(astray) < len(calls) {
			before = unsafe
		}
		calls = astray
	}
}

func only(calls []*invocation, which func(*invocation) bool) (these []*invocation) {
	for _, c := range calls {
		if which(c) {
			these = append(these, c)
		}
	}
	return these
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
	if away || TimedOut(err) && time.Since(sent) >= n.opts.Silence {
		n.opts.Links.Leave(sent)
	}
	return away
}

// AstrayInside returns the first error in a script's reply for which [Astray] returns true, or nil.
// Such an error did not stop the script.
func AstrayInside(reply any) error {
	f := FieldsOf(reply)
	if f.Number(0) == CodeRefused && Astray(Refusal(f.Text(1))) {
		return Refusal(f.Text(1))
	}
	for _, one := range f {
		if err := AstrayInside(one); err != nil {
			return err
		}
	}
	return nil
}

// send sends calls of scripts, by the scripts' texts if whole is true. It returns an error if too
// few replicas confirm the changes. If go-redis gets no connection for a pipeline, Exec returns an
// error that no call has. So send stores this error in each call without a result.
func (n *Node) send(ctx context.Context, calls []*invocation, whole bool) error {
	replicas := n.opts.WaitReplicas
	if !slices.ContainsFunc(calls, (*invocation).confirmed) {
		replicas = 0
	}
	if len(calls) == 1 && replicas == 0 {
		calls[0].send(ctx, n.client, whole)
		return nil
	}
	pipe := n.client.Pipeline()
	for _, c := range calls {
		c.send(ctx, pipe, whole)
	}
	var ack *goredis.Cmd
	if replicas > 0 {
		ack = pipe.Do(ctx, "wait", replicas, n.opts.WaitTimeout.Milliseconds())
	}
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		if err != nil && c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
	if ack == nil {
		return nil
	}
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
