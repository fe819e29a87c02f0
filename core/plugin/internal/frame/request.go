package frame

import (
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

type kind byte

const (
	kindAcquire kind = iota + 1
	kindRenew
	kindRelease
	kindInspect
	kindProclaim
	_ // reserved: old versions used it for a Wait that reported no grant
	_ // reserved: old versions used it for a hand-over inside the plugin
	kindBatch
	kindCancel
	_ // reserved: old versions used it for a WaitAcquire whose reply had no span
	_ // reserved: old versions used it for a WaitAcquire
	kindWithdraw
	kindWait
	kinds // one more than the highest kind
)

type load struct {
	of  [kinds]int
	all int
}

func (l *load) add(k kind, n int) {
	l.of[k] += n
	l.all += n
}

// calls returns the number of requests under way, without those that wait in the store.
func (l *load) calls() int { return l.all - l.of[kindWait] }

// message is the content of a request without its id. The kind decides
// which fields are used.
type message struct {
	kind    kind
	budget  time.Duration // time left until the caller's deadline; 0 if it has none
	request driver.Request
	max     time.Duration // for kindWait: argument of Wait
	ops     []driver.Op   // for kindBatch
}

func (m *message) append(b []byte, id uint64) []byte {
	c := coder{b: b}
	c.message(&id, m)
	return c.b
}

// readRequest decodes the payload p into *m and returns the request's id. Nothing in *m points into
// p. A session reads all requests with one coder, because the coder keeps the last label.
func (c *coder) readRequest(p []byte, m *message) (id uint64, err error) {
	c.b, c.reads, c.bad = p, true, false
	c.message(&id, m)
	return id, c.end()
}

func (c *coder) message(id *uint64, m *message) {
	uvarint(c, &m.kind)
	uvarint(c, id)
	if m.kind == kindCancel {
		return
	}
	uvarint(c, &m.budget)
	switch m.kind {
	case kindAcquire, kindRenew, kindRelease, kindProclaim:
		c.request(&m.request)
	case kindWait:
		c.request(&m.request)
		varint(c, &m.max)
	case kindInspect:
		c.name(&m.request.Name)
	case kindWithdraw:
		c.name(&m.request.Name)
		c.text(&m.request.Owner, maxOwner)
	case kindBatch:
		for i := range list(c, &m.ops, 0, maxBatchOps) {
			c.op(&m.ops[i])
		}
	default:
		c.fail()
	}
}

func (c *coder) op(op *driver.Op) {
	uvarint(c, &op.Kind)
	if c.reads && (op.Kind < driver.OpAcquire || op.Kind > driver.OpWithdraw) {
		c.fail()
	}
	c.request(&op.Request)
}

func (c *coder) request(r *driver.Request) {
	c.name(&r.Name)
	c.text(&r.Owner, maxOwner)
	if c.reads {
		r.Label = c.label
	}
	c.text(&r.Label, maxLabel)
	c.label = r.Label
	c.value(&r.Value, maxValue)
	uvarint(c, &r.Token)
	varint(c, &r.TTL)
	varint(c, &r.Keep)
}
