package frame

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// answer is the outcome of a request. The kind of the request decides which fields are set.
type answer struct {
	err     error
	token   uint64
	waited  time.Duration // for kindWait: from the start of the Wait in the plugin to Grant.Sent
	span    time.Duration
	holder  driver.Holder   // for kindInspect
	results []driver.Result // for kindBatch
}

// appendAnswer appends to b the payload of the reply to request number id. redact may be nil.
func appendAnswer(b []byte, id uint64, k kind, a *answer, redact *wire.Redactor) []byte {
	b = binary.AppendUvarint(b, id)
	c := coder{b: b, redact: redact, texts: maxShown, values: maxValue}
	c.answer(k, 0, a)
	if len(c.b)-len(b) > maxFrame-binary.MaxVarintLen64 {
		c.b, c.texts, c.values = b, maxShort, -1
		c.answer(k, 0, a)
	}
	return c.b
}

// readAnswer decodes the bytes p, a reply without the request's id, into *a. The request has the
// kind k. If the request is a batch, it has ops operations. Nothing in *a points into p.
func readAnswer(p []byte, k kind, ops int, a *answer) error {
	c := coder{b: p, reads: true, texts: maxShown, values: maxValue}
	c.answer(k, ops, a)
	return c.end()
}

func (c *coder) answer(k kind, ops int, a *answer) {
	if c.fault(&a.err); a.err != nil {
		return
	}
	switch k {
	case kindAcquire:
		uvarint(c, &a.token)
	case kindWait:
		uvarint(c, &a.token)
		varint(c, &a.waited)
		varint(c, &a.span)
	case kindInspect:
		c.holder(&a.holder)
	case kindBatch:
		for i := range list(c, &a.results, ops, ops) {
			r := &a.results[i]
			if c.fault(&r.Err); r.Err == nil {
				uvarint(c, &r.Token)
			}
		}
	}
}

// An encoded error starts with one of these values.
const (
	noFault byte = iota
	fault
	faultWithHolder
)

// fault writes or reads an error. The error codes of protocol version 1 become bits of one number.
func (c *coder) fault(err *error) {
	e := wire.EncodeError(*err, c.redact) // nil when reading
	how := noFault
	if e != nil {
		how = fault
	}
	if e.GetHolder() != nil {
		how = faultWithHolder
	}
	if uvarint(c, &how); how == noFault {
		return
	}
	if c.reads {
		e = &lockpb.Error{}
	}
	c.codes(&e.Codes)
	c.shown(&e.Text)
	var h driver.Holder
	if how == faultWithHolder {
		h = wire.ToHolder(e.Holder)
		c.holder(&h)
	}
	if how > faultWithHolder {
		c.fail()
	}
	if c.reads {
		e.Holder = wire.FromHolder(h)
		*err = wire.DecodeError(e)
	}
}

func (c *coder) codes(codes *[]lockpb.Error_Code) {
	var set uint64
	for _, code := range *codes {
		set |= 1 << code
	}
	if uvarint(c, &set); !c.reads {
		return
	}
	for code := range lockpb.Error_Code(64) {
		if set&(1<<code) != 0 {
			*codes = append(*codes, code)
		}
	}
}

func (c *coder) holder(h *driver.Holder) {
	c.shown(&h.Name)
	c.shown(&h.Owner)
	c.shown(&h.Label)
	c.value(&h.Value, c.values)
	uvarint(c, &h.Token)
	varint(c, &h.TTL)
	varint(c, &h.Waiters)
}

// shown cuts a text that is too long before it writes the text, but never within a character.
func (c *coder) shown(s *string) {
	if !c.reads && len(*s) > c.texts {
		cut := strings.ToValidUTF8((*s)[:c.texts], "")
		s = &cut
	}
	c.text(s, c.texts)
}
