package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// Limits of the protocol, in bytes. What exceeds them is refused by the sender
// before it is sent, and is a broken stream to the receiver.
const (
	maxName  = 512
	maxOwner = 64
	maxLabel = 256
	maxValue = 64 << 10
	// maxShown bounds the texts in a reply, which may come from foreigners.
	maxShown = 2 << 10
	// maxFrame bounds one frame after its length.
	maxFrame = 4 << 20
	// maxBatch and maxBatchOps bound a batch as the host splits it. A reply of
	// maxBatchOps errors without values fits a frame.
	maxBatch    = 256 << 10
	maxBatchOps = 1024
)

// headSize is the length before each frame: 4 bytes, big-endian.
const headSize = 4

// The data socket takes two connections of a host, one for each direction:
// where nothing is written, nobody is woken because there is room to write.
// A host says first which one it is.
const (
	prefaceRequests = "locks/2>"
	prefaceReplies  = "locks/2<"
)

// errBroken says that the peer does not keep to the protocol.
var errBroken = errors.New("broken frame")

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendValue tells nil from empty: it writes the length plus one.
func appendValue(b, v []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(v))+1)
	return append(b, v...)
}

// decoder reads the parts of one frame. After the first bad part, and past the
// end, everything is zero and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return number(d, v, n)
}

func (d *decoder) duration() time.Duration {
	v, n := binary.Varint(d.b)
	return time.Duration(number(d, v, n))
}

func number[N uint64 | int64](d *decoder, v N, n int) N {
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

// text returns a part of the frame itself, at most most bytes.
func (d *decoder) text(most int) []byte { return d.part(d.uvarint(), most) }

// name is text that is valid UTF-8: backends rely on it to keep names apart.
func (d *decoder) name() []byte {
	p := d.text(maxName)
	if !utf8.Valid(p) {
		d.fail()
	}
	return p
}

// value returns a copy.
func (d *decoder) value() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	p := d.part(n-1, maxValue)
	if d.bad {
		return nil
	}
	return append([]byte{}, p...)
}

func (d *decoder) part(n uint64, most int) []byte {
	if n > uint64(most) || n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) fail() { d.b, d.bad = nil, true }

// end returns an error if the frame was bad or has more in it.
func (d *decoder) end() error {
	if d.bad || len(d.b) > 0 {
		return errBroken
	}
	return nil
}

// check refuses what does not fit the protocol before anything of it is sent.
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
