package redisnode

import (
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// What redlock needs of one node beside the operations of [Node]: its votes
// are scripts of its own on the same keys and values.

// Script is the text of a script and the digest by which a server that has
// loaded it knows it.
type Script struct{ Text, SHA string }

// NewScript makes a script that runs quick, which may call the function slow:
// the shared parts, which read the keys and the queue, and body. It is called
// with the control key and the bars key before its own in KEYS, and with the
// side prefix and "0" before its own in ARGV.
func NewScript(body, quick string) Script {
	s := wholeScript("local function slow()\n" + stateLua + queueLua + body + "end\n" + quick)
	return Script{Text: s.text, SHA: s.sha}
}

// Control is the key of the hash that the locks of the prefix share, outside
// Cluster.
func (k Keys) Control() string { return k.control("") }

// Bars is the key of the set of withdrawn owners, outside Cluster.
func (k Keys) Bars() string { return k.bars("") }

// Side is what every key and channel of the prefix that is no lock starts with.
func (k Keys) Side() string { return k.side() }

// ValueTail is what follows owner and token in a lock key's value.
func ValueTail(label string, value []byte) string { return valueTail(label, value) }

// ParseVote reads what one node has for the lock name. Unlike elsewhere a
// value may have the token 0: a grant whose token is not written yet, or one
// without fencing. Milliseconds are as PTTL has them.
func ParseVote(name, raw string, ms int64, waiters int) driver.Holder {
	owner, rest, ok := strings.Cut(raw, " 0 ")
	if ok && isOwner(owner) {
		if h := parseHolder(name, owner+" 1 "+rest, ms, int64(waiters)); h.Token == 1 {
			h.Token = 0
			return h
		}
	}
	return parseHolder(name, raw, ms, int64(waiters))
}

// The codes that a refusal starts with; see lua/state.lua.
const (
	CodeHeld      = codeHeld
	CodeNotHeld   = codeNotHeld
	CodeWithdrawn = codeWithdrawn
	CodeTurn      = codeTurn
)

// LeaseID is what a lock key's value starts with.
func LeaseID(owner string, token uint64) string {
	return leaseID(driver.Request{Owner: owner, Token: token})
}
