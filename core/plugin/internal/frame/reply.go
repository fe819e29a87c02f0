package frame

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// answer is what a request came to. Kinds fill in what their operation returns.
type answer struct {
	err     error
	token   uint64
	waited  time.Duration // for kindWaitAcquire, as is span
	span    time.Duration
	holder  driver.Holder   // for kindInspect
	results []driver.Result // for kindBatch
}

// detail is how long texts may be in a reply.
type detail int

const (
	whole detail = maxShown
	// short also leaves out values. A batch of nothing but errors fits a frame
	// then: each has four texts.
	short detail = 512
)

// appendAnswer writes the payload of the reply to request id. redact may be nil.
func appendAnswer(b []byte, id uint64, k kind, a *answer, redact *wire.Redactor) []byte {
	b = binary.AppendUvarint(b, id)
	start := len(b)
	b = appendFault(b, a.err, redact, whole)
	if a.err != nil {
		return b
	}
	switch k {
	case kindAcquire:
		b = binary.AppendUvarint(b, a.token)
	case kindWaitAcquire:
		b = binary.AppendUvarint(b, a.token)
		b = binary.AppendVarint(b, int64(a.waited))
		b = binary.AppendVarint(b, int64(a.span))
	case kindInspect:
		b = appendHolder(b, a.holder, whole)
	case kindBatch:
		b = appendResults(b, a.results, redact, whole)
		if len(b)-start > maxFrame-binary.MaxVarintLen64 {
			b = appendResults(append(b[:start], noFault), a.results, redact, short)
		}
	}
	return b
}

func appendResults(b []byte, results []driver.Result, redact *wire.Redactor, d detail) []byte {
	b = binary.AppendUvarint(b, uint64(len(results)))
	for i := range results {
		b = appendFault(b, results[i].Err, redact, d)
		if results[i].Err == nil {
			b = binary.AppendUvarint(b, results[i].Token)
		}
	}
	return b
}

// A fault starts with one of these.
const (
	noFault         = 0
	fault           = 1
	faultWithHolder = 2
)

// appendFault writes an error with the codes of version 1 as a set of bits.
func appendFault(b []byte, err error, redact *wire.Redactor, d detail) []byte {
	if err == nil {
		return append(b, noFault)
	}
	e := wire.EncodeError(err, redact)
	how := byte(fault)
	if e.Holder != nil {
		how = faultWithHolder
	}
	b = append(b, how)
	var codes uint64
	for _, c := range e.Codes {
		codes |= 1 << c
	}
	b = binary.AppendUvarint(b, codes)
	b = appendText(b, clip(e.Text, d))
	if e.Holder != nil {
		b = appendHolder(b, wire.ToHolder(e.Holder), d)
	}
	return b
}

// appendHolder leaves out a value that is too large to be one of ours.
func appendHolder(b []byte, h driver.Holder, d detail) []byte {
	b = appendText(b, clip(h.Name, d))
	b = appendText(b, clip(h.Owner, d))
	b = appendText(b, clip(h.Label, d))
	if d == short || len(h.Value) > maxValue {
		h.Value = nil
	}
	b = appendValue(b, h.Value)
	b = binary.AppendUvarint(b, h.Token)
	b = binary.AppendVarint(b, int64(h.TTL))
	return binary.AppendVarint(b, int64(h.Waiters))
}

// clip bounds a text without cutting a character in two.
func clip(s string, d detail) string {
	if len(s) <= int(d) {
		return s
	}
	return strings.ToValidUTF8(s[:d], "")
}

// readAnswer fills in a from what follows the id in the reply to a request of
// kind k; ops is how many operations a batch had.
func readAnswer(d *decoder, k kind, ops int, a *answer) error {
	a.err = d.fault()
	if a.err != nil || d.bad {
		return d.end()
	}
	switch k {
	case kindAcquire:
		a.token = d.uvarint()
	case kindWaitAcquire:
		a.token, a.waited, a.span = d.uvarint(), d.duration(), d.duration()
	case kindInspect:
		a.holder = d.holder()
	case kindBatch:
		if d.uvarint() != uint64(ops) {
			d.fail()
			break
		}
		a.results = make([]driver.Result, ops)
		for i := range a.results {
			if a.results[i].Err = d.fault(); a.results[i].Err == nil {
				a.results[i].Token = d.uvarint()
			}
		}
	}
	return d.end()
}

func (d *decoder) fault() error {
	how := d.byte()
	if how == noFault {
		return nil
	}
	if how > faultWithHolder {
		d.fail()
		return errBroken
	}
	e := &lockpb.Error{}
	codes := d.uvarint()
	for c := range lockpb.Error_Code(64) {
		if codes&(1<<c) != 0 {
			e.Codes = append(e.Codes, c)
		}
	}
	e.Text = string(d.text(maxShown))
	if how == faultWithHolder {
		e.Holder = wire.FromHolder(d.holder())
	}
	return wire.DecodeError(e)
}

func (d *decoder) holder() driver.Holder {
	return driver.Holder{
		Name: string(d.text(maxShown)), Owner: string(d.text(maxShown)), Label: string(d.text(maxShown)),
		Value: d.value(), Token: d.uvarint(), TTL: d.duration(), Waiters: int(d.duration()),
	}
}
