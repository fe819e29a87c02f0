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

// NewScript makes a script of body, which may use what head has, and what rare
// returns as the table that the function library makes.
func NewScript(head, rare, body string) Script {
	s := wholeScript(lazily(head, rare, body))
	return Script{Text: s.text, SHA: s.sha}
}

// Head are the first arguments of every script, outside Cluster.
func (k Keys) Head() []any { return k.head("") }

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

// The codes that a refusal starts with; see lua/head.lua.
const (
	CodeHeld      = codeHeld
	CodeNotHeld   = codeNotHeld
	CodeWithdrawn = codeWithdrawn
	CodeTurn      = codeTurn
	CodeRefused   = codeRefused
)

// LeaseID is what a lock key's value starts with.
func LeaseID(owner string, token uint64) string {
	return leaseID(driver.Request{Owner: owner, Token: token})
}
