package redisnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// TombstoneFor is the time for which the store refuses a withdrawn owner. After a connection was
// closed, the kernel may still send its data, but for less than this time.
const TombstoneFor = 110 * time.Second

// Options are the settings of a [Node].
type Options struct {
	Keys Keys
	// ID names the channel to which the store sends messages for the Node's waiters. It consists of
	// random letters and digits.
	ID string
	// Turns is a script that puts a waiter into a queue. This queue only tells the waiter when to ask
	// for the lock. If Turns is nil, waiters use this package's queue, which grants them the lock.
	Turns *Script
	// Batches is the largest number of batches of requests that may be under way at once.
	Batches int
	// WaitReplicas is the number of replicas that must confirm a grant, renewal or release before it
	// counts. WaitTimeout is the longest time to wait for these confirmations.
	WaitReplicas int
	WaitTimeout  time.Duration
	// Links are the client's connections. If a reply says that a server does not serve, the Node gives
	// up the connections to it. Links is nil in a Cluster, where the reply of a wrong server names the
	// right server.
	Links *Links
	// Silence is how long a server may take to reply before it counts as one that does not serve.
	Silence time.Duration
	// PingEvery is the interval between two pings of a silent connection for wake-ups. If PingEvery is
	// below 2 s (pingEvery), the interval is 2 s.
	PingEvery time.Duration
}

// Node sends the operations of many callers to one store. Any number of goroutines may call its
// methods.
type Node struct {
	opts     Options
	client   goredis.UniversalClient
	requests *kit.Batcher[*item]
	distance kit.Distance

	// Wakeups receives the store's messages to the waiters and observers of this Node.
	Wakeups *Wakeups

	// Turned is signalled when [Node.Refuse] begins or ends the refusal of acquires.
	Turned   kit.Broadcast
	refusal  atomic.Pointer[error] // nil until the first Refuse
	looking  sync.Mutex            // lets one LookAgain run at a time, so that the newest answer stays
	judging  sync.Mutex            // guards verdicts
	verdicts map[string]error      // the last bad verdicts of Judge, by the String text of the server
}

// NewNode returns a Node that uses client. The Node's Close method closes the client.
func NewNode(client goredis.UniversalClient, opts Options) *Node {
	n := &Node{opts: opts, client: client, Wakeups: newWakeups(client, opts), verdicts: map[string]error{}}
	n.requests = kit.NewBatcher(kit.BatcherOptions[*item]{
		Limits:  kit.Limits[*item]{Size: (*item).size, Room: func() int { return maxPerTrip }, Claim: (*item).Claim},
		Senders: opts.Batches, Send: n.serve,
	})
	return n
}

// Refuse makes acquires fail with err, without a request to the server. Refuse(nil) ends that. The
// result turned reports whether the refusal of acquires begins or ends.
func (n *Node) Refuse(err error) (turned bool) {
	was := n.refusal.Swap(&err)
	if turned = (was == nil || *was == nil) != (err == nil); turned {
		n.Turned.Up()
	}
	return turned
}

// Refusal returns the error with which acquires are refused, or nil if they are not refused.
func (n *Node) Refusal() error {
	if err := n.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Close makes new requests fail with driver.ErrClosed, waits for requests under way, and closes the
// client.
func (n *Node) Close(ctx context.Context) error {
	n.Wakeups.background.End()
	n.Wakeups.background.Wait()
	// If ctx ends, the client is closed. This ends the requests that still wait for replies.
	stop := context.AfterFunc(ctx, func() { _ = n.client.Close() })
	n.requests.Close()
	if !stop() {
		return ctx.Err()
	}
	if err := n.client.Close(); !errors.Is(err, goredis.ErrClosed) {
		return err
	}
	return nil
}

// run calls a script that changes one lease. It returns an error if the script has refused that.
func (n *Node) run(ctx context.Context, s *Script, name string, args ...any) error {
	reply, err := n.call(ctx, n.invoke(s, []string{n.opts.Keys.Lock(name)}, false, args))
	if err != nil {
		return err
	}
	return decode(name, reply).Err
}

func (n *Node) call(ctx context.Context, v *invocation) (any, error) {
	if err := n.do(ctx, &item{call: v}); err != nil {
		return nil, err
	}
	reply, err := v.cmd.Result()
	return reply, Explain(err)
}

// invoke returns a call of the script s. It puts the common arguments of all scripts before args;
// see lua/head.lua.
func (n *Node) invoke(s *Script, locks []string, mints bool, args []any) *invocation {
	keys := locks
	if mints && n.opts.Keys.cluster {
		keys = []string{locks[0], n.opts.Keys.control(locks[0])}
	}
	return &invocation{script: s, keys: keys, args: append(n.opts.Keys.Head(locks[0]), args...)}
}

// Proclaim replaces the published value of a lease; see driver.Lock.
func (n *Node) Proclaim(ctx context.Context, r driver.Request) error {
	return n.run(ctx, proclaimScript, r.Name, LeaseID(r.Owner, r.Token), string(r.Value))
}

// Break ends the lease with this token; see driver.Admin.
func (n *Node) Break(ctx context.Context, name string, token uint64) error {
	return n.run(ctx, breakScript, name, strconv.FormatUint(token, 10))
}

// Inspect returns the holder of the lock with the given name.
func (n *Node) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	holders, err := n.inspect(ctx, "0", name)
	return holders[0], err
}

// InspectAll calls emit with the holder of each held lock in names, until emit
// returns false. It does not read all locks at the same instant.
func (n *Node) InspectAll(ctx context.Context, names []string, emit func(driver.Holder) bool) error {
	for chunk := range slices.Chunk(names, n.perScript()) {
		holders, err := n.inspect(ctx, "0", chunk...)
		if err != nil {
			return err
		}
		for _, h := range holders {
			if h.Held() && !emit(h) {
				return nil
			}
		}
	}
	return nil
}

// inspect reads the holders of locks. Without an error, it returns a holder for each name. If
// observe is "1", all hosts then publish changes of locks for some seconds. This applies to all
// locks with the prefix or, in a Cluster, in the same slot.
func (n *Node) inspect(ctx context.Context, observe string, names ...string) ([]driver.Holder, error) {
	holders, locks := make([]driver.Holder, len(names)), make([]string, len(names))
	for i, name := range names {
		locks[i] = n.opts.Keys.Lock(name)
	}
	reply, err := n.call(ctx, n.invoke(inspectScript, locks, false, []any{observe}))
	if err != nil {
		return holders, err
	}
	replies := FieldsOf(reply)
	if len(replies) != len(names) {
		return holders, ErrReply(reply)
	}
	for i, name := range names {
		if holders[i], err = decodeHolder(name, replies[i]); err != nil {
			break
		}
	}
	return holders, err
}

// ErrReply returns the error for a reply that has an unexpected form.
func ErrReply(reply any) error {
	return fmt.Errorf("%w: unexpected reply of type %T", driver.ErrUnavailable, reply)
}
