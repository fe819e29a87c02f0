package redisnode

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// opsPerScript limits the operations in a script, because other clients wait while a script runs.
const opsPerScript = 32

// op is one operation, encoded for lua/operate.lua. It is encoded before it is queued. Otherwise
// its caller might return, and change the request's data, before the op is sent.
type op struct {
	kind           string
	name, id, tail string
	ms             int64
	queued         bool // the refused acquire has renewed its owner's place in the queue
	result         *driver.Result
}

func encode(o driver.Op) (op, error) {
	r := o.Request
	switch {
	case o.Kind == driver.OpAcquire:
		return op{kind: "a", name: r.Name, id: r.Owner, tail: ValueTail(r.Label, r.Value), ms: r.TTL.Milliseconds()}, nil
	case o.Kind == driver.OpRenew:
		id := LeaseID(r.Owner, r.Token)
		return op{kind: "r", name: r.Name, id: id, tail: strconv.Itoa(len(id) - 1), ms: r.TTL.Milliseconds()}, nil
	case o.Kind == driver.OpWithdraw:
		return op{kind: "w", name: r.Name, id: r.Owner, ms: TombstoneFor.Milliseconds()}, nil
	case o.Kind == driver.OpRelease:
		id := LeaseID(r.Owner, r.Token)
		return op{kind: "d", name: r.Name, id: id, tail: strconv.Itoa(len(id) - 1), ms: kit.Millis(r.Keep)}, nil
	}
	return op{}, fmt.Errorf("%w: operation %d of a batch", driver.ErrInvalid, o.Kind)
}

// Do executes the operations ops in one round trip. The results are in the order of ops. Operations
// on the same lock are executed in their order. When ctx ends, Do returns at once, but operations
// already sent may still be executed.
func (n *Node) Do(ctx context.Context, ops ...driver.Op) []driver.Result {
	it, err := newItem(ops)
	if err == nil {
		err = n.do(ctx, it)
	}
	if err != nil {
		return slices.Repeat([]driver.Result{{Err: err}}, len(ops))
	}
	return it.results
}

// Start queues one operation and returns at once. When the result is known, it calls the function
// finish, on any goroutine. If ctx ends before the operation is sent, it is never sent.
func (n *Node) Start(ctx context.Context, o driver.Op, finish func(driver.Result)) {
	it, err := newItem([]driver.Op{o})
	if err == nil {
		it.ctx, it.finish = ctx, finish
		if !n.requests.Add(it) {
			err = driver.ErrClosed
		}
	}
	if err != nil {
		finish(driver.Result{Err: err})
	}
}

func newItem(ops []driver.Op) (*item, error) {
	it := &item{}
	it.ops, it.results = it.op1[:], it.result1[:]
	if len(ops) != 1 {
		it.ops, it.results = make([]op, len(ops)), make([]driver.Result, len(ops))
	}
	for i, o := range ops {
		var err error
		if it.ops[i], err = encode(o); err != nil {
			return nil, err
		}
		it.ops[i].result = &it.results[i]
	}
	return it, nil
}

// calls returns the items' calls of scripts, with the items' operations in calls of operate.lua. It
// answers acquires that [Node.Refuse] refuses, and items from Start whose ctx has ended.
func (n *Node) calls(items []*item) (calls []*invocation) {
	var due []*op
	refused := n.Refusal()
	for _, it := range items {
		if it.call != nil {
			calls = append(calls, it.call)
		}
		for i := range it.ops {
			o := &it.ops[i]
			switch {
			case it.finish != nil && it.ctx.Err() != nil:
				o.result.Err = unsent(it.ctx)
			case o.kind == "a" && refused != nil:
				o.result.Err = refused
			default:
				due = append(due, o)
			}
		}
	}
	for ops := range slices.Chunk(due, n.perScript()) {
		locks, args, mints := make([]string, len(ops)), make([]any, 0, 4*len(ops)), false
		for i, o := range ops {
			locks[i] = n.opts.Keys.Lock(o.name)
			// Pointers are passed, because a value in an interface would be copied to the heap.
			args = append(args, &o.kind, &o.id, &o.ms, &o.tail)
			mints = mints || o.kind == "a"
		}
		v := n.invoke(operateScript, locks, mints, args)
		v.ops = ops
		calls = append(calls, v)
	}
	return calls
}

// perScript returns the largest number of locks for one script. In a Cluster it is 1, because all
// keys of a script must be in one slot, and on one node even while the slot moves.
func (n *Node) perScript() int {
	if n.opts.Keys.cluster {
		return 1
	}
	return opsPerScript
}

// confirmed reports whether replicas must confirm the operation. They must confirm a release,
// because a failover that loses the release leaves the lock held. A withdrawal needs no
// confirmation, because the acquire that it undoes often never reached the replicas.
func (o *op) confirmed() bool { return o.kind != "w" }

func (v *invocation) confirmed() bool { return slices.ContainsFunc(v.ops, (*op).confirmed) }

// deliver stores each reply in the result of its operation. If unsafe is not nil, replicas may lack
// the changes. It then replaces each success that replicas must confirm, and each reply to a
// release.
func (v *invocation) deliver(unsafe error) {
	all, err := v.cmd.Slice()
	switch {
	case err != nil:
		err = Explain(err)
	case len(all) != len(v.ops):
		err = fmt.Errorf("%w: %d replies to %d operations", driver.ErrUnavailable, len(all), len(v.ops))
	}
	for i, o := range v.ops {
		res := o.result
		if err != nil {
			res.Err = err
			continue
		}
		*res, o.queued = decode(o.name, all[i]), queued(all[i])
		if refusal, ok := res.Err.(Refusal); ok {
			res.Err = Explain(refusal)
		}
		if o.kind != "a" {
			res.Token = 0
		}
		// If unsafe is not nil, the answer "no such lease" to a release is not reliable. An earlier try
		// may have released the lease, and a failover may undo that release.
		if unsafe != nil && o.confirmed() && (res.Err == nil || o.kind == "d") {
			*res = driver.Result{Err: unsafe}
		}
	}
}
