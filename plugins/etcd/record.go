package etcd

import (
	"encoding/binary"
	"errors"
)

// record is what the value of an entry says: a version byte, then owner and label,
// each behind its length, then the published value. No two grants have the same,
// because no two have the same owner.
type record struct {
	owner string
	label string
	value []byte
}

const recordVersion = 3

var errRecord = errors.New("a value that this version did not write")

func (r record) encode() []byte {
	b := make([]byte, 0, 1+2*binary.MaxVarintLen16+len(r.owner)+len(r.label)+len(r.value))
	b = append(b, recordVersion)
	for _, s := range [...]string{r.owner, r.label} {
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
	var part [2]string
	for i := range part {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return record{}, errRecord
		}
		part[i], b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	r := record{owner: part[0], label: part[1]}
	if len(b) > 0 {
		r.value = b
	}
	return r, nil
}
