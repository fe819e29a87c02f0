package redlock

import "slices"

// A token is above every earlier one of its name because each grant's token is
// written to a quorum while those nodes hold the grant, and the next grant's
// must be above what a quorum of the nodes that granted it has seen: the two
// quorums share a node. A node has always seen its own clock, in microseconds,
// so that one which has lost its counter still refuses old tokens.
//
// To do this in one round the caller guesses: a token that all nodes have yet
// to see, because it is a little ahead of their clocks. A node that has seen
// it grants the lock without a token, says what it has seen, and a second
// round writes one above that.

// guess returns a token that most nodes will not have seen. The caller holds
// sending, so that guesses rise in the order in which they reach each node.
//
// It goes by the clock of the node in the middle, so that one node whose clock
// runs ahead does not drag the tokens of all along.
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

// learn takes note of a token that was needed.
func (b *Backend) learn(token uint64) {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.guessed = max(b.guessed, token)
}
