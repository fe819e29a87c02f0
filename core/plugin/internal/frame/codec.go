package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// These are the limits of the protocol, in bytes. The sender refuses a frame
// that exceeds them before it is sent; to the receiver it is a broken stream.
const (
	maxName  = 512
	maxOwner = 64
	maxLabel = 256
	maxValue = 64 << 10
	// maxShown bounds the texts in a reply, which may come from foreign clients.
	maxShown = 2 << 10
	// maxShort bounds them where they would not fit a frame: a batch of nothing
	// but errors then fits, each with four texts and without a value.
	maxShort = 512
	// maxFrame bounds one frame after its length.
	maxFrame = 4 << 20
	// maxBatch and maxBatchOps bound a batch as the host splits it. A reply of
	// maxBatchOps errors without values fits a frame.
	maxBatch    = 256 << 10
	maxBatchOps = 1024
)

// headSize is the length before each frame: 4 bytes, big-endian.
const headSize = 4

// The data socket takes two connections of a host, one for each direction: a
// process that never writes on a connection is not woken because there is
// room to write. A host first says which one it makes.
const (
	prefaceRequests = "locks/2>"
	prefaceReplies  = "locks/2<"
)

// errBroken says that the peer violates the protocol.
var errBroken = errors.New("broken frame")

// coder writes the payload of a frame, or reads one. Each part has one method
// that does either, so that the two directions cannot differ. Reading fills
// zero values, and writing leaves its values unchanged. After the first part
// that cannot be read, and past the end, every value is zero and bad is set.
type coder struct {
	b     []byte // bytes written so far, or left to read
	reads bool
	bad   bool

	label         string         // the last label read: a host sends the same one again and again
	redact        *wire.Redactor // for errors that are written; may be nil
	texts, values int            // bounds in replies
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

// part reads n bytes of the frame itself, at most most.
func (c *coder) part(n, most int) []byte {
	if n > most || n > len(c.b) {
		c.fail()
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

// text keeps the old string in s if the bytes read are the same.
func (c *coder) text(s *string, most int) {
	n := len(*s)
	if uvarint(c, &n); !c.reads {
		c.b = append(c.b, *s...)
	} else if p := c.part(n, most); string(p) != *s {
		*s = string(p)
	}
}

// name is text that must be valid UTF-8: backends rely on it to keep names apart.
func (c *coder) name(s *string) {
	if c.text(s, maxName); c.reads && !utf8.ValidString(*s) {
		c.fail()
	}
}

// value tells nil from empty by writing the length plus one. A value that is
// too long is written as nil.
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

// list reads or writes the number of elements of l, which follow, and
// returns l. A list that is read has least to most elements.
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

// end returns an error if the frame was bad or has bytes left.
func (c *coder) end() error {
	if c.bad || len(c.b) > 0 {
		return errBroken
	}
	return nil
}

// check refuses a request that does not fit the protocol before any of it is sent.
func check(r *driver.Request) error {
	if err := checkName(r.Name); err != nil {
		return err
	}
	for _, part := range []struct {
		what      string
		size, max int
	}{{"owner", len(r.Owner), maxOwner}, {"label", len(r.Label), maxLabel}, {"value", len(r.Value), maxValue}} {
		if part.size > part.max {
			return fmt.Errorf("%w: %s has %d bytes, allowed are %d", driver.ErrInvalid, part.what, part.size, part.max)
		}
	}
	return nil
}

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("%w: name has %d bytes, allowed are %d", driver.ErrInvalid, len(name), maxName)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: name %q is not valid UTF-8", driver.ErrInvalid, name)
	}
	return nil
}
