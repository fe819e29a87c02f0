package etcd

import (
	"encoding/binary"
	"errors"
)

// record is what the value of a lease or of a queue entry says: a version byte,
// then owner, label and entry, each behind its length, then the published value. No
// two grants have the same, because no two have the same owner.
type record struct {
	owner string
	label string
	// entry is the id of the queue entry that the lock was got from, "" when it
	// was free. That entry is kept as long as the lock is held: the next waiter
	// watches it.
	entry string
	value []byte
}

const recordVersion = 2

var errRecord = errors.New("a value that this version did not write")

func (r record) encode() []byte {
	b := make([]byte, 0, 1+3*binary.MaxVarintLen16+len(r.owner)+len(r.label)+len(r.entry)+len(r.value))
	b = append(b, recordVersion)
	for _, s := range [...]string{r.owner, r.label, r.entry} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return append(b, r.value...)
}

func decodeRecord(b []byte) (record, error) {
	if len(b) == 0 || b[0] != recordVersion {
		return record{}, errRecord
	}
	b = b[1:]
	var part [3]string
	for i := range part {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return record{}, errRecord
		}
		part[i], b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	r := record{owner: part[0], label: part[1], entry: part[2]}
	if len(b) > 0 {
		r.value = b
	}
	return r, nil
}
