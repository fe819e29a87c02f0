package etcd

import "strings"

// Keys of one namespace, with P for its prefix, N for a lock's name, O for an
// owner, I for a process and a number, and | for the byte 0xFF:
//
//	P|n N|h     the lease on N; its create revision makes the token
//	P|n N|w I   an entry in the queue of N, in the order of create revisions
//	P|b N|O     the tombstone of O, which was withdrawn from N and is refused
//	P|e         the base of tokens
//
// Valid UTF-8 never contains 0xFF, so that prefixes and names need no escaping:
// no two of them collide, and a scan of one name never meets another. Comparing
// a create revision compares owner and token in one, within a generation: see
// txn.Step.In.
//
// Note: an owner, of which each grant has another, is not part of the keys of
// leases and queue entries. The server keeps deleted keys in its index until it
// compacts, and a Txn that asks whether N is free would look at each: a lock
// taken a hundred times a second would be slow within minutes.
const (
	separator = "\xff"
	kindHold  = "h"
	kindEntry = "w"
)

// space is one namespace.
type space struct{ names, tombstones, generation string }

func newSpace(prefix string) space {
	own := prefix + separator
	return space{names: own + "n", tombstones: own + "b", generation: own + "e"}
}

func (s space) entry(name, id string) string { return s.entries(name) + id }

func (s space) tombstone(name, owner string) string {
	return s.tombstones + name + separator + owner
}

// hold is the key of a lease; entries and both are what all keys of that kind of
// one name begin with.
func (s space) hold(name string) string    { return s.both(name) + kindHold }
func (s space) entries(name string) string { return s.both(name) + kindEntry }
func (s space) both(name string) string    { return s.names + name + separator }

// parse takes a key of kind h or w apart. rest is the entry's id.
func (s space) parse(key string) (name, kind, rest string) {
	name, rest, _ = strings.Cut(strings.TrimPrefix(key, s.names), separator)
	if rest == "" {
		return name, "", ""
	}
	return name, rest[:1], rest[1:]
}
