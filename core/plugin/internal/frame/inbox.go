package frame

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	bufferSize = 64 << 10
	// A buffer of more than keepSize bytes is not kept after use.
	keepSize = 512 << 10
)

// inbox reads frames. One read takes all frames that have arrived, if they fit into the buffer.
type inbox struct {
	r        io.Reader
	buf      []byte
	from, to int // buf[from:to] was read from the connection but not yet returned by next
}

func newInbox(r io.Reader) *inbox { return &inbox{r: r, buf: make([]byte, bufferSize)} }

// next returns the payload of the next frame, or nil if that frame was not
// read completely yet. The payload is valid until the next call of fill.
func (in *inbox) next() ([]byte, error) {
	if in.to-in.from < headSize {
		return nil, nil
	}
	size := binary.BigEndian.Uint32(in.buf[in.from:])
	if size == 0 || size > maxFrame {
		return nil, fmt.Errorf("%w of %d bytes", errBroken, size)
	}
	start := in.from + headSize
	end := start + int(size)
	if in.to < end {
		return nil, nil
	}
	in.from = end
	return in.buf[start:end:end], nil
}

// fill waits for more bytes. It grows the buffer only when received bytes have filled it. So a
// frame's head that announces a large payload does not make the buffer grow.
func (in *inbox) fill() error {
	switch {
	case in.from == in.to:
		in.from, in.to = 0, 0
		if len(in.buf) > keepSize {
			in.buf = make([]byte, bufferSize)
		}
	case in.from > 0 && len(in.buf)-in.to < bufferSize/2:
		in.to = copy(in.buf, in.buf[in.from:in.to])
		in.from = 0
	}
	if in.to == len(in.buf) {
		grown := make([]byte, 2*len(in.buf))
		copy(grown, in.buf)
		in.buf = grown
	}
	n, err := in.r.Read(in.buf[in.to:])
	in.to += n
	if n > 0 {
		return nil
	}
	return err
}
