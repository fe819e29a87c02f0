package frame

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	bufferSize = 64 << 10
	// keepSize is the largest size of a buffer that is kept after it was needed once.
	keepSize = 512 << 10
)

// inbox reads frames, as many at once as there are.
type inbox struct {
	r        io.Reader
	buf      []byte
	from, to int // bytes that were read and not yet taken
}

func newInbox(r io.Reader) *inbox { return &inbox{r: r, buf: make([]byte, bufferSize)} }

// next returns the payload of a frame that has been read, valid until fill;
// nil when there is none.
func (in *inbox) next() ([]byte, error) {
	size, err := in.size()
	if err != nil || size < 0 || in.to-in.from < headSize+size {
		return nil, err
	}
	start := in.from + headSize
	in.from = start + size
	return in.buf[start:in.from:in.from], nil
}

// size returns the size of the next frame, negative when its head is not read yet.
func (in *inbox) size() (int, error) {
	if in.to-in.from < headSize {
		return -1, nil
	}
	size := binary.BigEndian.Uint32(in.buf[in.from:])
	if size == 0 || size > maxFrame {
		return 0, fmt.Errorf("%w of %d bytes", errBroken, size)
	}
	return int(size), nil
}

// fill waits for more bytes. The buffer grows with the bytes that have come,
// never with a size that the peer only announces.
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
