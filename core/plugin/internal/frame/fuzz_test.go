package frame

import (
	"bytes"
	"encoding/binary"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/lockbench/lockbench/core/driver"
)

// FuzzPayload reads arbitrary bytes as a request and as an answer. No read may panic. The test then
// writes the result and reads it again. A request must stay the same. An answer must be readable.
func FuzzPayload(f *testing.F) {
	for _, m := range messages(&testing.T{}) {
		f.Add(m.append(nil, 3), byte(m.kind))
	}
	h := driver.Holder{Name: "n", Owner: "o", Value: []byte{}, Token: 1, TTL: 1, Waiters: -1}
	a := answer{token: 1, holder: h, results: []driver.Result{{Token: 1}, {Err: &driver.NotHeldError{Holder: h}}}}
	for k := range kinds {
		f.Add(appendAnswer(nil, 3, k, &a, nil)[1:], byte(k))
	}
	f.Fuzz(func(t *testing.T, p []byte, k byte) {
		var c coder
		var m, again message
		if id, err := c.readRequest(bytes.Clone(p), &m); err == nil {
			if id2, err := c.readRequest(m.append(nil, id), &again); err != nil || id2 != id || !reflect.DeepEqual(m, again) {
				t.Errorf("%x: read %+v, then %+v, %v", p, m, again, err)
			}
		}
		var a answer
		if readAnswer(bytes.Clone(p), kind(k), 2, &a) == nil {
			if err := readAnswer(appendAnswer(nil, 3, kind(k), &a, nil)[1:], kind(k), 2, &answer{}); err != nil {
				t.Errorf("%x: read %+v, which is not an answer: %v", p, a, err)
			}
		}
	})
}

// FuzzInbox checks that an inbox returns the frames of a stream, however few bytes a read returns.
// The buffer must not exceed twice bufferSize or, if the stream is longer, twice the stream.
func FuzzInbox(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 9, 0, 0, 0, 2, 8, 8}, true)
	f.Add([]byte{0, 0x40, 0, 0, 1}, false)
	f.Add([]byte{255, 255, 255, 255}, false)
	f.Fuzz(func(t *testing.T, stream []byte, slowly bool) {
		var r io.Reader = bytes.NewReader(stream)
		if slowly {
			r = iotest.OneByteReader(r)
		}
		in := newInbox(r)
		var seen []byte
		err := in.fill()
		for ; err == nil; err = in.fill() {
			for {
				p, bad := in.next()
				if bad != nil {
					return
				}
				if p == nil {
					break
				}
				seen = append(binary.BigEndian.AppendUint32(seen, uint32(len(p))), p...)
			}
		}
		if !bytes.HasPrefix(stream, seen) || len(in.buf) > 2*max(len(stream), bufferSize) {
			t.Errorf("%x became %x, in a buffer of %d bytes", stream, seen, len(in.buf))
		}
	})
}
