package redisnode

import (
	"context"
	"fmt"
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
}

func encode(o driver.Op) (op, error) {
	r := o.Request
	switch {
	case o.Kind == driver.OpAcquire:
		return op{kind: "a", name: r.Name, id: r.Owner, tail: ValueTail(r.Label, r.Value), ms: r.TTL.Milliseconds()}, nil
	case o.Kind == driver.OpRenew:
		id := LeaseID(r.Owner, r.Token)
		return op{kind: "r", name: r.Name, id: id, tail: lastIndex(id), ms: r.TTL.Milliseconds()}, nil
	case o.Kind == driver.OpWithdraw:
		return op{kind: "w", name: r.Name, id: r.Owner, ms: TombstoneFor.Milliseconds()}, nil
	case o.Kind == driver.OpRelease:
		id := LeaseID(r.Owner, r.Token)
		return op{kind: "d", name: r.Name, id: id, tail: lastIndex(id), ms: kit.Millis(r.Keep)}, nil
	}
	return op{}, fmt.Errorf("%w: operation %d of a batch", driver.ErrInvalid, o.Kind)
}

func lastIndex(id string) string { return strconv.Itoa(len(id) - 1) }

// Do executes the operations ops in one round trip. The results are in the order of ops. Operations
// on the same lock are executed in their order. When ctx ends, Do returns at once, but operations
// already sent may still be executed.
func (n *Node) Do(ctx context.Context, ops ...driver.Op) []driver.Result {
	it := newItem(len(ops))
	for i, o := range ops {
		var err error
		if it.ops[i], err = encode(o); err != nil {
			return failed(len(ops), err)
		}
	}
	if err := n.do(ctx, it); err != nil {
		return failed(len(ops), err)
	}
	return it.replies
}

// Start queues one operation and returns at once. When the result is known, it calls the function
// finish, on any goroutine. If ctx ends before the operation is sent, it is never sent.
func (n *Node) Start(ctx context.Context, o driver.Op, finish func(driver.Result)) {
	it := newItem(1)
	it.ctx, it.finish = ctx, finish
	it.deadline, _ = ctx.Deadline()
	var err error
	if it.ops[0], err = encode(o); err == nil && !n.requests.Add(it) {
		err = driver.ErrClosed
	}
	if err != nil {
		finish(driver.Result{Err: err})
	}
}

func newItem(count int) *item {
	it := &item{}
	it.ops, it.replies = it.op1[:], it.reply1[:]
	if count != 1 {
		it.ops, it.replies = make([]op, count), make([]driver.Result, count)
	}
	return it
}

func failed(count int, err error) []driver.Result {
	replies := make([]driver.Result, count)
	for i := range replies {
		replies[i].Err = err
	}
	return replies
}

// part is one call of lua/operate.lua. It records which item (request) gets each reply.
type part struct {
	*invocation
	items   []*item
	indexes []int
	locks   []string
	renewed bool // replicas must confirm at least one of the operations
}

func (n *Node) parts(items []*item) []*part {
	var parts []*part
	var open *part
	refused := n.Refusal()
	for _, it := range items {
		for i, o := range it.ops {
			if o.kind == "a" && refused != nil {
				it.replies[i].Err = refused
				continue
			}
			if open == nil || len(open.locks) == n.perScript() {
				open = &part{}
				parts = append(parts, open)
			}
			open.add(it, i, n.opts.Keys.Lock(o.name))
		}
	}
	for _, p := range parts {
		args := make([]any, 0, 4*len(p.items))
		mints := false
		for j, it := range p.items {
			// Pointers are passed, because a value in an interface would be copied to the heap.
			o := &it.ops[p.indexes[j]]
			args = append(args, &o.kind, &o.id, &o.ms, &o.tail)
			mints = mints || o.kind == "a"
		}
		p.invocation = n.invoke(operateScript, p.locks, mints, args)
	}
	return parts
}

// perScript returns the largest number of locks for one script. In a Cluster it is 1, because all
// keys of a script must be in one slot, and on one node even while the slot moves.
func (n *Node) perScript() int {
	if n.opts.Keys.cluster {
		return 1
	}
	return opsPerScript
}

func (p *part) add(it *item, i int, lock string) {
	p.items = append(p.items, it)
	p.indexes = append(p.indexes, i)
	p.locks = append(p.locks, lock)
	kind := it.ops[i].kind
	p.renewed = p.renewed || confirmed(kind)
}

// confirmed reports whether replicas must confirm an operation of this kind. They must confirm a
// release, because a failover that loses the release leaves the lock held. A withdrawal needs no
// confirmation, because the acquire that it undoes often never reached the replicas.
func confirmed(kind string) bool { return kind != "w" }

// deliver stores each reply in its item (request). If unsafe is not nil, replicas may lack the
// changes. It then replaces each success that replicas must confirm, and each reply to a release.
func (p *part) deliver(unsafe error) {
	all, err := p.cmd.Slice()
	switch {
	case err != nil:
		err = Explain(err)
	case len(all) != len(p.items):
		err = fmt.Errorf("%w: %d replies to %d operations", driver.ErrUnavailable, len(all), len(p.items))
	}
	for j, it := range p.items {
		i := p.indexes[j]
		o, reply := &it.ops[i], &it.replies[i]
		if err != nil {
			reply.Err = err
			continue
		}
		*reply, o.queued = decode(o.name, all[j]), queued(all[j])
		if refusal, ok := reply.Err.(Refusal); ok {
			reply.Err = Explain(refusal)
		}
		if o.kind != "a" {
			reply.Token = 0
		}
		// If unsafe is not nil, the answer "no such lease" to a release is not reliable. An earlier try
		// may have released the lease, and a failover may undo that release.
		if unsafe != nil && confirmed(o.kind) && (reply.Err == nil || o.kind == "d") {
			*reply = driver.Result{Err: unsafe}
		}
	}
}
