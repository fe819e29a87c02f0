package wire

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// FuzzMessages converts arbitrary messages of protocol version 1. It checks that no conversion
// panics, and that a converted value is the same after it is sent and received once more.
func FuzzMessages(f *testing.F) {
	full := []proto.Message{
		fromRequest(driver.Request{Name: "n", Owner: "o", Label: "l", Value: []byte("v"), Token: 1, TTL: 2, Keep: 3}),
		fromOp(driver.Op{Kind: driver.OpRenew, Request: driver.Request{Name: "n"}}),
		FromHolder(driver.Holder{Name: "n", Owner: "o", TTL: -1, Waiters: -1}),
		fromNotice(driver.Notice{Kind: driver.NoticeLost, Name: "n", Err: driver.ErrNotHeld}, nil),
		fromProperties(driver.Properties{Name: "n", Capabilities: []driver.Capability{driver.CapWaiter}}),
		EncodeError(&driver.HeldError{Holder: driver.Holder{Name: "n", Token: 1}}, nil),
	}
	for i, m := range full {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		switch which % 6 {
		case 0:
			sentOn(t, b, &lockpb.Request{}, toRequest, fromRequest)
		case 1:
			sentOn(t, b, &lockpb.Op{}, toOp, fromOp)
		case 2:
			sentOn(t, b, &lockpb.Holder{}, ToHolder, FromHolder)
		case 3:
			var m lockpb.Notice
			if proto.Unmarshal(b, &m) == nil {
				if n := toNotice(&m); n.Err != nil && n.Err.Error() != toNotice(fromNotice(n, nil)).Err.Error() {
					t.Errorf("%x: the cause %q changes on its way", b, n.Err)
				}
			}
		case 4:
			sentOn(t, b, &lockpb.Properties{}, toProperties, fromProperties)
		case 5:
			var m lockpb.Error
			if proto.Unmarshal(b, &m) == nil {
				_ = DecodeError(&m).Error()
			}
		}
	})
}

func sentOn[M proto.Message, V any](t *testing.T, b []byte, m M, to func(M) V, from func(V) M) {
	t.Helper()
	if proto.Unmarshal(b, m) != nil {
		return
	}
	v := to(m)
	if again := to(from(v)); !reflect.DeepEqual(v, again) {
		t.Errorf("%x: read %+v, sent on as %+v", b, v, again)
	}
}
