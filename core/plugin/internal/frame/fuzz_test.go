package frame

import (
	"bytes"
	"encoding/binary"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// What the plugin reads: nothing panics, and what is understood is understood
// in one way.
func FuzzRequest(f *testing.F) {
	for _, m := range messages(&testing.T{}) {
		f.Add(m.append(nil, 3))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var rr requestReader
		var m, again message
		id, err := rr.read(bytes.Clone(p), &m)
		if err != nil {
			return
		}
		id2, err := rr.read(m.append(nil, id), &again)
		if err != nil || id2 != id || !reflect.DeepEqual(m, again) {
			t.Errorf("%x: read %+v, then %+v, %v", p, m, again, err)
		}
	})
}

// What the host reads.
func FuzzAnswer(f *testing.F) {
	kinds := []kind{kindAcquire, kindRelease, kindInspect, kindBatch, kindWaitAcquire}
	h := driver.Holder{Name: "n", Owner: "o", Value: []byte{}, Token: 1, TTL: 1, Waiters: -1}
	for _, a := range []answer{
		{token: 1, waited: time.Second}, {holder: h}, {err: driver.ErrNotSent}, {err: &driver.NotHeldError{Holder: h}},
		{results: []driver.Result{{Token: 1}, {Err: driver.ErrHeld}}},
	} {
		for i, k := range kinds {
			_, n := binary.Uvarint(appendAnswer(nil, 3, k, &a, nil))
			f.Add(appendAnswer(nil, 3, k, &a, nil)[n:], byte(i))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, which byte) {
		k := kinds[int(which)%len(kinds)]
		var a answer
		if readAnswer(&decoder{b: bytes.Clone(p)}, k, 2, &a) != nil {
			return
		}
		sent := appendAnswer(nil, 3, k, &a, nil)
		_, n := binary.Uvarint(sent)
		var again answer
		if err := readAnswer(&decoder{b: sent[n:]}, k, 2, &again); err != nil {
			t.Errorf("%x: read %+v, which is not an answer: %v", p, a, err)
		}
	})
}

// Frames come out as they went in, however the stream is cut, and a stream
// never makes the inbox larger than what has come and one frame need.
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
