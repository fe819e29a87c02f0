package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// TryAcquire acquires the lock r.Name if a majority of nodes votes for it; see driver.Lock.
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	res := b.do(ctx, b.acquire(r))[0]
	return res.Token, res.Err
}

func (b *Backend) checkTTL(ttl time.Duration) error {
	switch {
	case ttl < b.opts.ttlMin():
		return fmt.Errorf("%w: TTL %v is less than %d times node_timeout %v", driver.ErrInvalid, ttl, leastTTL, b.opts.NodeTimeout)
	case ttl > b.opts.MaxTTL:
		return fmt.Errorf("%w: TTL %v is more than max_ttl %v", driver.ErrInvalid, ttl, b.opts.MaxTTL)
	}
	return nil
}

// acquisition is one attempt to get a lock. Each of its rounds sends one request to the nodes. The
// first round takes the lock on every node, with a guessed token. If the guess was too low, a
// second round writes a higher token. If the attempt fails, a last round frees the lock.
type acquisition struct {
	operation
	first     *quorumRequest
	votes     []vote // the first round's votes when the round was decided
	queue     int    // index of the node with the lock's queue; -1 for none
	onlyQueue bool   // only the node with the queue has been asked so far
}

// acquire asks all nodes for the lock. If the lock has waiters, and no wake-up has told this host
// that it is r.Owner's turn, acquire first asks only the node with the queue. An attempt on all
// nodes might take votes from the waiter whose turn it is.
func (b *Backend) acquire(r driver.Request) *operation {
	a := &acquisition{operation: operation{b: b, verb: "acquire", r: r, sent: time.Now()}}
	a.next = a.judge
	if err := b.checkTTL(r.TTL); err != nil {
		return a.refuse(err)
	}
	a.queue = b.queueOf(r.Name, r.Owner)
	x := a.take()
	if a.queue >= 0 && b.contention.outOfTurn(r.Name, r.Owner) {
		x.targets = make([]bool, len(b.nodes))
		x.targets[a.queue] = true
		x.quorum, a.onlyQueue = 0, true
	}
	return &a.operation
}

func (a *acquisition) take() *quorumRequest {
	x := a.ask(kindAcquire, redisnode.ValueTail(a.r.Label, a.r.Value))
	x.ms, x.token, x.grantee, x.queue = kit.Millis(a.r.TTL), 0, a.r.Owner, a.queue
	return x
}

// askOthers asks all nodes except the node with the queue, which has already given the vote v.
func (a *acquisition) askOthers(before *quorumRequest, v vote) (more bool) {
	a.onlyQueue = false
	x := a.take()
	x.token, x.known = before.token, &v
	x.targets = make([]bool, len(a.b.nodes))
	for i := range x.targets {
		x.targets[i] = i != x.queue
	}
	return true
}

// judge reads the last round's votes, and either ends the attempt or starts its next round.
func (a *acquisition) judge() (more bool) {
	kind, votes := a.now.kind, a.now.result()
	if kind == kindAcquire {
		a.first, a.votes = a.now, votes
	}
	most := len(votes) - a.b.quorum
	granted, no, refused := count(votes, vote.yes), count(votes, vote.no), count(votes, is(withdrawn))
	switch {
	case kind == kindUndo:
		return a.undone(votes)
	case kind == kindToken && granted < a.b.quorum:
		return a.undo(a.b.unavailable(votes))
	case a.onlyQueue && votes[a.queue].answer != turn:
		return a.askOthers(a.now, votes[a.queue])
	case a.queue >= 0 && votes[a.queue].answer == turn:
		a.b.contention.note(a.r.Name)
		ttl := time.Duration(max(votes[a.queue].ms, 1)) * time.Millisecond
		return a.undo(&driver.HeldError{Holder: driver.Holder{Name: a.r.Name, TTL: ttl, Waiters: -1}})
	case granted < a.b.quorum && refused > 0 && no <= most:
		return a.undo(driver.ErrWithdrawn)
	case granted < a.b.quorum:
		a.b.lookForOver(a.r.Name, votes)
		return a.undo(a.refusal(votes))
	case a.late():
		return a.undo(a.tooLate())
	case kind == kindToken || granted-count(votes, is(pending)) >= a.b.quorum:
		return a.granted(a.now.token)
	}
	token := lowestAbove(votes, a.b.quorum)
	a.b.learn(token)
	x := a.ask(kindToken, a.guessed())
	x.token, x.targets = token, a.mayHold()
	return true
}

// lowestAbove returns the lowest token above all tokens that some quorum of the granting nodes has
// seen. So one clock far ahead does not raise the result.
func lowestAbove(votes []vote, quorum int) uint64 {
	var floors []uint64
	for _, v := range votes {
		switch {
		case v.answer == pending:
			floors = append(floors, v.floor)
		case v.yes():
			floors = append(floors, 0) // the node accepted the guess, so it has seen only lower tokens
		}
	}
	slices.Sort(floors)
	return floors[quorum-1] + 1
}

// guessed returns the token that the first round guessed, in the form used in the lock's value.
func (a *acquisition) guessed() string { return strconv.FormatUint(a.first.token, 10) + " " }

// granted ends the attempt with a grant. In the background it sends the token to nodes that granted
// the lock without a token, and copies the lease to nodes where another owner's failing attempt had
// the lock. It also removes this owner from the lock's queue.
func (a *acquisition) granted(token uint64) (more bool) {
	b, key := a.b, a.now.key
	a.r.Token, a.token = token, token
	if b.leaveQueues(a.r.Owner) && a.queue >= 0 {
		b.tell(a.queue, &quorumRequest{kind: kindLeave, key: key, owner: a.r.Owner})
	}
	a.first.each(func(n int, v vote) {
		switch {
		case v.answer == freed:
			b.contention.note(a.r.Name)
		case v.answer == heldBy: // the other owner undoes its attempt before the copy of the lease comes
			a.repairFrom(slices.IndexFunc(a.votes, vote.yes), n, 2*b.opts.NodeTimeout)
		case v.answer == pending && a.first == a.now: // else the second round sends the token
			b.tell(n, &quorumRequest{kind: kindToken, key: key, owner: a.r.Owner, token: token, rest: a.guessed()})
		}
	})
	return false
}

// refusal returns the error for an attempt without the votes of a majority.
func (a *acquisition) refusal(votes []vote) error {
	granted, no := count(votes, vote.yes), count(votes, vote.no)
	if granted+no < a.b.quorum {
		return a.b.unavailable(votes)
	}
	by := holders(a.r.Name, votes)
	most := mostVotes(by)
	h := a.b.agree(most)
	h.Name, h.Waiters, h.Value = a.r.Name, -1, nil // a refusal has only the beginning of the value
	h.TTL = a.free(votes, granted)
	if len(most) == 0 || len(most) < a.b.quorum && len(by) > 1 {
		// No owner has a majority, so all owners now undo their attempts. The short random TTL makes them
		// retry soon, but at different times.
		h.TTL = min(h.TTL, jitter(a.b.opts.NodeTimeout/5))
	}
	return &driver.HeldError{Holder: h}
}

// free returns the time until the lock may be free on a majority. It assumes that the lock is free
// on nodes that did not vote. An early retry costs only one round, but a late retry leaves the lock
// unused.
func (a *acquisition) free(votes []vote, granted int) time.Duration {
	var waits []time.Duration
	for _, v := range votes {
		if !v.no() {
			continue
		}
		wait := time.Duration(max(v.ms, 1)) * time.Millisecond
		if v.ms == -1 { // a foreign lock that does not expire
			wait = a.b.opts.MaxTTL
		}
		waits = append(waits, wait)
	}
	if len(waits) == 0 {
		return time.Millisecond
	}
	slices.Sort(waits)
	needed, unknown := a.b.quorum-granted, len(votes)-granted-len(waits)
	return waits[max(needed-unknown, 1)-1]
}

func (a *acquisition) mayHold() []bool {
	targets := make([]bool, len(a.votes))
	for i, v := range a.votes {
		targets[i] = v.yes() || v.answer == missing || v.answer == unknown
	}
	return targets
}

// undo starts the round that frees the lock on the nodes where this attempt may have taken it. The
// round waits for all of these nodes, because a failed attempt must leave nothing behind (rule K2).
func (a *acquisition) undo(err error) (more bool) {
	a.err = err
	if a.queue >= 0 && !a.votes[a.queue].queued {
		// The node with the queue may have forgotten this owner, so the next Wait must put the owner into
		// the queue again.
		a.b.leaveQueues(a.r.Owner)
	}
	targets := a.mayHold()
	if !slices.Contains(targets, true) {
		unasked := count(a.votes, is(unsent)) + count(a.votes, is(quarantined))
		if errors.Is(err, driver.ErrUnavailable) && unasked == len(a.votes) { // no node can still grant it
			a.err = &nothingLeft{err}
		}
		return false
	}
	x := a.ask(kindUndo, a.valueHeads())
	x.targets, x.quorum = targets, 0
	x.each(a.b.wakeAt(a.r.Name))
	return true
}

// valueHeads returns the beginnings of all values that this attempt may have written to the lock's
// key: with the guessed token, without a token, or with the second round's token. The undo deletes
// only values with such a beginning. When a late undo arrives, a later attempt of the same owner
// may have the lock on the node, with other tokens. The undo can delete that attempt's value only
// if the value has no token, and then the value counts for no majority.
func (a *acquisition) valueHeads() string {
	heads := "\n" + redisnode.LeaseID(a.r.Owner, 0) + "\n" + a.r.Owner + " " + a.guessed()
	if a.now.kind == kindToken {
		heads += "\n" + redisnode.LeaseID(a.r.Owner, a.now.token)
	}
	return heads
}

// undone ends the attempt after its undo. If every node that may have received the attempt's
// request has confirmed the undo, the caller has nothing to withdraw.
func (a *acquisition) undone(votes []vote) (more bool) {
	first := a.first.result() // including late votes
	if count(first, vote.yes) > 0 && len(mostVotes(holders(a.r.Name, first))) >= a.b.quorum {
		a.b.contention.lacks.Put(a.r.Owner, first)
		a.b.contention.note(a.r.Name)
	}
	for i, asked := range a.now.targets {
		if asked && !votes[i].yes() {
			return false
		}
	}
	if errors.Is(a.err, driver.ErrUnavailable) {
		a.err = &nothingLeft{a.err}
	}
	return false
}

// A new token must be above every earlier token of its lock. A grant's token is written to a quorum
// of nodes while they hold the grant. The next token must be above all tokens that a quorum of its
// granting nodes has seen. The two quorums share a node, so tokens rise. A node also counts its
// clock, in microseconds, as a seen token. So even a node without data refuses old tokens.
//
// To save a round, an acquire sends a guess: a token a little ahead of the nodes' clocks, which no
// node should have seen. A node that has seen this token or a higher one grants the lock without a
// token, and returns the highest token that it has seen. A second round then writes a higher token.

// guess returns a token that at most a few nodes have seen. The caller must hold b.sending until
// its request is queued. So each node gets the requests in the order of their guesses.
//
// The guess is based on the median of the nodes' clocks, so that one fast clock does not raise all
// tokens.
func (b *Backend) guess() uint64 {
	ahead := make([]int64, 0, 9)
	for _, n := range b.nodes {
		if a := n.ahead.Load(); a != 0 {
			ahead = append(ahead, a)
		}
	}
	var clock int64
	if len(ahead) >= b.quorum {
		slices.Sort(ahead)
		clock = b.clock() + ahead[b.quorum-1] + b.opts.NodeTimeout.Microseconds()
	}
	b.guessed = max(b.guessed+1, uint64(max(clock, 0)))
	return b.guessed
}

// learn records the token of a second round, so that later guesses are higher.
func (b *Backend) learn(token uint64) {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.guessed = max(b.guessed, token)
}
