package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// These are the limits of the protocol, in bytes. A sender returns an error if a frame would exceed
// a limit. A receiver ends the connection if a frame exceeds a limit.
const (
	maxName  = 512
	maxOwner = 64
	maxLabel = 256
	maxValue = 64 << 10
	// maxShown bounds each text in a reply, because a text may come from any client of the store.
	maxShown = 2 << 10
	// maxShort replaces maxShown in a reply that would not fit into a frame. With maxShort, a batch's
	// reply fits even if each operation failed with an error that has four texts.
	maxShort = 512
	// maxFrame bounds the payload of one frame, which is everything after the frame's head.
	maxFrame = 4 << 20
	// maxBatch (in bytes) and maxBatchOps (in operations) bound the parts into which the
	// host splits a batch. A reply with maxBatchOps errors and no values fits a frame.
	maxBatch    = 256 << 10
	maxBatchOps = 1024
)

// headSize is the size of a frame's head: the payload's length in 4 bytes, big-endian.
const headSize = 4

// A host opens one connection for requests and one for replies. If both shared a connection, room
// for writes would wake a process that waits for data. The first bytes tell the connections apart.
const (
	prefaceRequests = "locks/2>"
	prefaceReplies  = "locks/2<"
)

// errBroken means that the peer violates the protocol.
var errBroken = errors.New("broken frame")

// coder writes or reads the payload of a frame. For each part of a payload, one method both writes
// and reads, so that writes and reads agree. When a coder reads, the target must be zero. When a
// coder writes, it changes no value. If a part is malformed, or the payload ends too early, the
// coder sets the field bad. That part and all later parts then stay zero.
type coder struct {
	b     []byte // bytes written so far, or left to read
	reads bool
	bad   bool

	label         string         // the last label read; a host always sends the same, so it is reused
	redact        *wire.Redactor // removes secrets from errors that are written; may be nil
	texts, values int            // largest size of one text and of one value in a reply
}

func uvarint[N ~byte | ~int | ~int64 | ~uint64](c *coder, v *N) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, uint64(*v))
		return
	}
	got, n := binary.Uvarint(c.b)
	if *v = N(got); n <= 0 || uint64(*v) != got || *v < 0 {
		c.fail()
		*v, n = 0, 0
	}
	c.b = c.b[n:]
}

func varint[N ~int | ~int64](c *coder, v *N) {
	if !c.reads {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	got, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		got, n = 0, 0
	}
	*v, c.b = N(got), c.b[n:]
}

// part returns the next n bytes of c.b without copying them. If n is too large, it sets c.bad.
func (c *coder) part(n, most int) []byte {
	if n > most || n > len(c.b) {
		c.fail()
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

// text writes or reads *s. If it reads a text that equals *s, it allocates no memory.
func (c *coder) text(s *string, most int) {
	n := len(*s)
	if uvarint(c, &n); !c.reads {
		c.b = append(c.b, *s...)
	} else if p := c.part(n, most); string(p) != *s {
		*s = string(p)
	}
}

// name writes or reads a lock's name. It reads only valid UTF-8, as backends expect.
func (c *coder) name(s *string) {
	if c.text(s, maxName); c.reads && !utf8.ValidString(*s) {
		c.fail()
	}
}

// value writes or reads *v. It encodes the length plus one, so that 0 means nil. It writes nil
// instead of a value that is longer than the parameter most.
func (c *coder) value(v *[]byte, most int) {
	n := 0
	if *v != nil && len(*v) <= most {
		n = len(*v) + 1
	}
	switch uvarint(c, &n); {
	case n == 0:
	case !c.reads:
		c.b = append(c.b, *v...)
	default:
		if p := c.part(n-1, most); !c.bad {
			*v = append([]byte{}, p...)
		}
	}
}

// list writes or reads only the length of slice l. The caller must then write or read the elements
// of the returned slice. Reading fails unless the length is at least least and at most most.
func list[E any](c *coder, l *[]E, least, most int) []E {
	n := len(*l)
	if uvarint(c, &n); c.reads {
		if n < least || n > most {
			c.fail()
			n = 0
		}
		*l = make([]E, n)
	}
	return *l
}

func (c *coder) fail() { c.b, c.bad = nil, true }

func (c *coder) end() error {
	if c.bad || len(c.b) > 0 {
		return errBroken
	}
	return nil
}

// check returns an error if the request r exceeds a limit.
func check(r *driver.Request) error {
	for _, part := range []struct {
		what      string
		size, max int
	}{{"name", len(r.Name), maxName}, {"owner", len(r.Owner), maxOwner}, {"label", len(r.Label), maxLabel}, {"value", len(r.Value), maxValue}} {
		if part.size > part.max {
			return fmt.Errorf("%w: %s has %d bytes, allowed are %d", driver.ErrInvalid, part.what, part.size, part.max)
		}
	}
	if !utf8.ValidString(r.Name) {
		return fmt.Errorf("%w: name %q is not valid UTF-8", driver.ErrInvalid, r.Name)
	}
	return nil
}
