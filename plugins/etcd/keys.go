package etcd

import (
	"encoding/binary"
	"strings"
)

// These are the keys of a namespace. P stands for its prefix, N for a lock's name, O for an owner,
// I for a process and a number, and | for the byte 0xFF:
//
//	P|n N|h     an entry of N that was put when N had no entry
//	P|n N|w I   an entry of N that was put behind other entries
//	P|b N|O     the tombstone of O, which was withdrawn from N and is refused
//	P|e         the base of tokens; see txn.Generation
//
// The owner of the entry of N with the lowest create revision holds the lock N, and this revision
// makes the token. The owners of the other entries wait, in the order of the create revisions.
//
// Valid UTF-8 never contains 0xFF. So no two locks share a key, and a scan of one lock's keys finds
// no key of another lock, although prefixes and names are not escaped. Until the store loses its
// data, each grant has a different create revision (see txn.Step.In). So a request that compares
// this revision compares owner and token too. Decision etcd-6 says why keys do not have the owner.
const (
	separator   = "\xff"
	kindFree    = "h"
	kindWaiting = "w"
)

// space is one namespace.
type space struct{ names, tombstones, generation string }

func newSpace(prefix string) space {
	own := prefix + separator
	return space{names: own + "n", tombstones: own + "b", generation: own + "e"}
}

func (s space) free(name string) string        { return s.entries(name) + kindFree }
func (s space) waiting(name, id string) string { return s.entries(name) + kindWaiting + id }
func (s space) entries(name string) string     { return s.names + name + separator }

func (s space) tombstone(name, owner string) string {
	return s.tombstones + name + separator + owner
}

func (s space) nameOf(key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, s.names), separator)
	return name
}

// record is the value of an entry. It consists of a version byte, the length and text of the owner,
// the length and text of the label, and the published value. Each grant's record is unique because
// each grant has a different owner.
type record struct {
	owner string
	label string
	value []byte
}

const recordVersion = 3

func (r record) encode() []byte {
	b := make([]byte, 0, 1+2*binary.MaxVarintLen16+len(r.owner)+len(r.label)+len(r.value))
	b = append(b, recordVersion)
	for _, s := range [...]string{r.owner, r.label} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return append(b, r.value...)
}

// decodeRecord returns the zero record if b does not have the format that encode writes.
func decodeRecord(b []byte) record {
	if len(b) == 0 || b[0] != recordVersion {
		return record{}
	}
	b = b[1:]
	var part [2]string
	for i := range part {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return record{}
		}
		part[i], b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	r := record{owner: part[0], label: part[1]}
	if len(b) > 0 {
		r.value = b
	}
	return r
}
