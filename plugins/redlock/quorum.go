package redlock

import (
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// kind says what a node must do with a request; see lua/vote.lua and lua/slowpath.lua.
type kind string

const (
	kindAcquire  kind = "a"
	kindToken    kind = "s"
	kindRenew    kind = "r"
	kindRepair   kind = "h"
	kindProclaim kind = "p"
	kindInspect  kind = "i"
	kindRelease  kind = "d"
	kindUndo     kind = "u"
	kindWithdraw kind = "w"
	kindBreak    kind = "b"
	kindWake     kind = "k"
	kindLeave    kind = "l"
	kindCheck    kind = "c"
	kindOver     kind = "o"
)

// answer is the kind of a node's vote, or the reason why there is no vote.
type answer int8

const (
	missing     answer = iota // no reply yet
	done                      // the request was done
	freed                     // the request was done, and the node's queue has a waiter for the lock
	pending                   // the lock was granted without a token; the token must be above floor
	seen                      // the vote names the owner that holds the lock on the node, if there is one
	heldBy                    // another owner holds the lock on the node
	notHeld                   // the node does not have the lease
	withdrawn                 // the node refuses the owner, because the owner was withdrawn
	turn                      // the lock is free, but kept for the waiter whose turn it is
	quarantined               // the node has lost data, and its vote does not count
	unsent                    // the node never got the request and never will
	unknown                   // the node may have got the request
)

type vote struct {
	answer  answer
	floor   uint64 // with pending: the token must be higher than this
	raw     string // the value of the lock's key, or its beginning
	ms      int64  // a reply of PTTL; with turn, milliseconds until the turn ends
	waiters int
	queued  bool  // with heldBy: the refused owner is in that node's queue
	err     error // why the answer is unsent or unknown
}

func (v vote) yes() bool { return v.answer == done || v.answer == freed || v.answer == pending }
func (v vote) no() bool  { return v.answer == heldBy || v.answer == notHeld || v.answer == turn }

// absent reports whether the node has not voted on the request, and never will.
func (v vote) absent() bool {
	return v.answer == unsent || v.answer == unknown || v.answer == quarantined
}

func (v vote) holder(name string) (h driver.Holder) {
	switch v.answer {
	case seen, heldBy, notHeld:
		h = redisnode.ParseVote(name, v.raw, v.ms)
	}
	return h
}

// quorumRequest is one request to several nodes, and their votes on it.
type quorumRequest struct {
	kind  kind
	key   string
	owner string
	ms    int64
	token uint64
	rest  string
	// grantee is the owner to which this request may grant the lock. It is "" for other requests.
	grantee string
	// targets says for each node whether it is asked; nil means all nodes.
	targets []bool
	// quorum is the number of votes that the request needs. The request is decided when it has these
	// votes, or when it can no longer get them. If quorum is 0, the request waits for every vote.
	quorum int
	// queue is the index of the node whose vote a grant needs, because this node knows whose turn it
	// is. It is -1 if there is no such node.
	queue int
	// A node that missed the request no longer needs it after the time in the until field. A release
	// with Keep frees the lock at the time in the kept field.
	until, kept time.Time
	// known is the vote of the node with the queue, if that node was asked before the other nodes.
	known *vote

	argv [3]any // the script's arguments for the request

	mu      sync.Mutex
	votes   []vote
	over    bool
	decided chan struct{}
	follow  func(node int, v vote)
}

// givesUp reports whether the request ends a lease or an attempt. Such a request must reach each
// node. On a node that misses it, the lock stays taken without a holder.
func (b *quorumRequest) givesUp() bool {
	return b.kind == kindUndo || b.kind == kindWithdraw || b.kind == kindRelease || b.kind == kindBreak
}

// hints returns three arguments that make lua/vote.lua faster. Two are the lowest and the highest
// guessed token of the acquires in batch. The third is the index of the last byte in the texts of
// all requests except acquires, if these texts have the same length.
func hints(batch []*quorumRequest) (lowest, highest, index any) {
	var first, last uint64
	length, same := 0, true
	for _, b := range batch {
		if b.kind != kindAcquire {
			n := len(b.argv[2].(string))
			same = same && (length == 0 || n == length)
			length = n
			continue
		}
		if b.token <= last {
			return "", "", ""
		}
		if last = b.token; first == 0 {
			first = last
		}
	}
	if !same || length == 0 {
		return first, last, ""
	}
	return first, last, length - 1
}

// encode sets the script's arguments. All scripts get the owner and the token, even if they need
// only one of them.
func (b *quorumRequest) encode() {
	b.argv = [3]any{string(b.kind), b.ms, redisnode.LeaseID(b.owner, b.token) + b.rest}
}

// open prepares the request before it is sent to n nodes, whose votes then count.
func (b *quorumRequest) open(n int) {
	b.encode()
	b.votes = make([]vote, n)
	b.decided = make(chan struct{})
	if b.targets == nil {
		return
	}
	for i, asked := range b.targets {
		if !asked {
			b.votes[i].answer = unsent
		}
	}
	if b.known != nil {
		b.votes[b.queue] = *b.known
	}
	b.decide()
}

func (b *quorumRequest) asks(node int) bool { return b.targets == nil || b.targets[node] }

// deliver records a node's vote, unless no caller waits for the votes (see Backend.tell). It is
// called once for each node that was asked.
func (b *quorumRequest) deliver(node int, v vote) {
	b.mu.Lock()
	if b.votes != nil {
		b.votes[node] = v
		b.decide()
	}
	follow := b.follow
	b.mu.Unlock()
	if follow != nil {
		follow(node, v)
	}
}

// decide closes the channel decided if the missing votes can no longer change the outcome. The
// caller holds mu.
func (b *quorumRequest) decide() {
	if !b.over && b.complete() {
		b.over = true
		close(b.decided)
	}
}

func (b *quorumRequest) complete() bool {
	open := count(b.votes, is(missing))
	if open == 0 || b.quorum == 0 {
		return open == 0
	}
	most := len(b.votes) - b.quorum // if more nodes vote no, the request cannot get a quorum
	if count(b.votes, vote.no) > most || count(b.votes, is(withdrawn)) > most {
		return true
	}
	if b.kind == kindAcquire && b.queue >= 0 && b.votes[b.queue].answer == missing {
		return false
	}
	granted := count(b.votes, vote.yes)
	accepted := granted - count(b.votes, is(pending))
	// Wait while a quorum may still accept the guessed token, because that saves the second round.
	return accepted >= b.quorum || granted >= b.quorum && accepted+open < b.quorum
}

func (b *quorumRequest) result() []vote {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]vote(nil), b.votes...)
}

// each calls f for every vote so far, and for each later vote when it comes. f must not block.
func (b *quorumRequest) each(f func(node int, v vote)) {
	b.mu.Lock()
	b.follow = f
	came := append([]vote(nil), b.votes...)
	b.mu.Unlock()
	for i, v := range came {
		if v.answer != missing && b.asks(i) {
			f(i, v)
		}
	}
}

func count(votes []vote, f func(vote) bool) int {
	n := 0
	for _, v := range votes {
		if f(v) {
			n++
		}
	}
	return n
}

func is(a answer) func(vote) bool { return func(v vote) bool { return v.answer == a } }

// decode returns the vote in reply, which lua/vote.lua gave to a request of kind k.
func decode(k kind, reply any) vote {
	if n, ok := reply.(int64); ok {
		switch {
		case n == 1:
			return vote{answer: done}
		case n == 2:
			return vote{answer: freed}
		case k == kindAcquire && n > 2:
			return vote{answer: pending, floor: uint64(n)}
		}
	}
	f := redisnode.FieldsOf(reply)
	raw, ms := f.Text(1), f.Number(2)
	switch f.Number(0) {
	case 0:
		return vote{answer: seen, raw: raw, ms: ms, waiters: int(f.Number(3))}
	case redisnode.CodeHeld:
		return vote{answer: heldBy, raw: raw, ms: ms, queued: f.Number(3) == 1}
	case redisnode.CodeNotHeld:
		return vote{answer: notHeld, raw: raw, ms: ms}
	case redisnode.CodeWithdrawn:
		return vote{answer: withdrawn}
	case redisnode.CodeTurn:
		return vote{answer: turn, ms: f.Number(1)}
	case redisnode.CodeRefused:
		return vote{answer: unknown, err: redisnode.Explain(redisnode.Refusal(raw))}
	case redisnode.CodeQuarantined:
		return vote{answer: quarantined}
	}
	return vote{answer: unknown, err: redisnode.ErrReply(reply)}
}
