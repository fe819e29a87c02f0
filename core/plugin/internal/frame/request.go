package frame

import (
	"encoding/binary"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// kind says what a request asks for.
type kind byte

const (
	kindAcquire kind = iota + 1
	kindRenew
	kindRelease
	kindInspect
	kindProclaim
	kindWait
	_ // was the hand-over of a plugin that had one
	kindBatch
	kindCancel
	_ // was a WaitAcquire whose reply has no span
	kindWaitAcquire
	kindWithdraw
	kinds // their number and one
)

// waits reports whether requests of kind k last.
func (k kind) waits() bool { return k == kindWait || k == kindWaitAcquire }

// load counts requests.
type load struct {
	of  [kinds]int
	all int
}

func (l *load) add(k kind, n int) {
	l.of[k] += n
	l.all += n
}

// calls are the requests that do not last.
func (l *load) calls() int { return l.all - l.of[kindWait] - l.of[kindWaitAcquire] }

// message is what a request says besides its id. Kinds read from it what their
// operation reads.
type message struct {
	kind    kind
	budget  time.Duration // what is left of the caller's deadline; 0: it has none
	request driver.Request
	max     time.Duration // for kindWait and kindWaitAcquire
	ops     []driver.Op   // for kindBatch
}

// append writes the payload of a request.
func (m *message) append(b []byte, id uint64) []byte {
	b = append(b, byte(m.kind))
	b = binary.AppendUvarint(b, id)
	if m.kind == kindCancel {
		return b
	}
	b = binary.AppendUvarint(b, uint64(max(m.budget, 0)))
	switch m.kind {
	case kindInspect:
		return appendText(b, m.request.Name)
	case kindWithdraw:
		return appendText(appendText(b, m.request.Name), m.request.Owner)
	case kindBatch:
		b = binary.AppendUvarint(b, uint64(len(m.ops)))
		for i := range m.ops {
			b = append(b, byte(m.ops[i].Kind))
			b = appendRequest(b, &m.ops[i].Request)
		}
		return b
	}
	b = appendRequest(b, &m.request)
	if m.kind.waits() {
		b = binary.AppendVarint(b, int64(m.max))
	}
	return b
}

func appendRequest(b []byte, r *driver.Request) []byte {
	b = appendText(b, r.Name)
	b = appendText(b, r.Owner)
	b = appendText(b, r.Label)
	b = appendValue(b, r.Value)
	b = binary.AppendUvarint(b, r.Token)
	b = binary.AppendVarint(b, int64(r.TTL))
	return binary.AppendVarint(b, int64(r.Keep))
}

// requestReader reads requests. A host says the same label again and again, so
// it keeps the last one.
type requestReader struct{ label string }

// read fills in m from a payload and returns the request's id. Nothing in m
// points into p.
func (rr *requestReader) read(p []byte, m *message) (id uint64, err error) {
	d := decoder{b: p}
	m.kind = kind(d.byte())
	id = d.uvarint()
	if m.kind == kindCancel {
		return id, d.end()
	}
	m.budget = time.Duration(d.uvarint())
	switch m.kind {
	case kindInspect:
		m.request.Name = string(d.name())
	case kindWithdraw:
		m.request.Name, m.request.Owner = string(d.name()), string(d.text(maxOwner))
	case kindBatch:
		rr.batch(&d, m)
	case kindWait, kindWaitAcquire:
		rr.request(&d, &m.request)
		m.max = d.duration()
	case kindAcquire, kindRenew, kindRelease, kindProclaim:
		rr.request(&d, &m.request)
	default:
		d.fail()
	}
	if m.budget < 0 {
		d.fail()
	}
	return id, d.end()
}

func (rr *requestReader) batch(d *decoder, m *message) {
	n := d.uvarint()
	if n > maxBatchOps {
		d.fail()
		return
	}
	m.ops = make([]driver.Op, n)
	for i := range m.ops {
		op := &m.ops[i]
		op.Kind = driver.OpKind(d.byte())
		rr.request(d, &op.Request)
		if op.Kind < driver.OpAcquire || op.Kind > driver.OpWithdraw {
			d.fail()
		}
	}
}

func (rr *requestReader) request(d *decoder, r *driver.Request) {
	name, owner := d.name(), d.text(maxOwner)
	if !d.bad {
		// One allocation for both: they live and die together.
		both := make([]byte, 0, maxName+maxOwner)
		text := string(append(append(both, name...), owner...))
		r.Name, r.Owner = text[:len(name)], text[len(name):]
	}
	if label := d.text(maxLabel); string(label) != rr.label {
		rr.label = string(label)
	}
	r.Label = rr.label
	r.Value = d.value()
	r.Token = d.uvarint()
	r.TTL = d.duration()
	r.Keep = d.duration()
}
