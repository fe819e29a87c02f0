package frame

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// filled returns a struct in which every field has a value. So these
// tests fail if the frames omit a new field.
func filled[V any](t *testing.T) V {
	t.Helper()
	var v V
	fill(t, reflect.ValueOf(&v).Elem())
	return v
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("text of " + v.Type().String())
	case reflect.Int, reflect.Int64:
		v.SetInt(-1 << 40)
	case reflect.Uint64:
		v.SetUint(1 << 63)
	case reflect.Slice:
		v.SetBytes([]byte{0, 255})
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("no value for a %v", v.Type())
	}
}

func messages(t *testing.T) []message {
	r := filled[driver.Request](t)
	next := r
	next.Owner, next.Value = "next", []byte{}
	var ops []driver.Op
	for _, k := range []driver.OpKind{driver.OpAcquire, driver.OpRenew, driver.OpRelease, driver.OpWithdraw} {
		ops = append(ops, driver.Op{Kind: k, Request: r})
	}
	return []message{
		{kind: kindAcquire, budget: time.Hour, request: r},
		{kind: kindRenew, request: r},
		{kind: kindRelease, request: r},
		{kind: kindWithdraw, request: driver.Request{Name: r.Name, Owner: r.Owner}},
		{kind: kindInspect, request: driver.Request{Name: "é\x00"}},
		{kind: kindProclaim, request: r},
		{kind: kindWait, request: r, max: time.Second},
		{kind: kindBatch, ops: ops},
		{kind: kindCancel},
	}
}

func TestRequestsArriveWhole(t *testing.T) {
	for _, want := range messages(t) {
		var c coder
		var got message
		p := want.append(nil, 1<<40)
		id, err := c.readRequest(p, &got)
		if err != nil || id != 1<<40 || !reflect.DeepEqual(got, want) {
			t.Errorf("got %d, %v, %+v\nwant %+v", id, err, got, want)
		}
		for n := range p {
			if _, err := c.readRequest(p[:n], &message{}); err == nil {
				t.Errorf("kind %d: the first %d of %d bytes are a request too", want.kind, n, len(p))
			}
		}
		if _, err := c.readRequest(append(p, 0), &message{}); err == nil {
			t.Errorf("kind %d: a byte too many is no error", want.kind)
		}
	}
}

func answered(t *testing.T, k kind, ops int, a answer) answer {
	t.Helper()
	var got answer
	if err := readAnswer(appendAnswer(nil, 7, k, &a, nil)[1:], k, ops, &got); err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return got
}

func TestAnswersArriveWhole(t *testing.T) {
	h := filled[driver.Holder](t)
	for k, want := range map[kind]answer{
		kindAcquire: {token: 1 << 63},
		kindRenew:   {},
		kindWait:    {token: 3, waited: -time.Second, span: time.Minute},
		kindInspect: {holder: h},
		kindBatch:   {results: []driver.Result{{Token: 5}, {Err: &driver.HeldError{Holder: h}}, {Err: driver.ErrWithdrawn}}},
	} {
		if got := answered(t, k, len(want.results), want); !reflect.DeepEqual(got, want) {
			t.Errorf("kind %d: got %+v, want %+v", k, got, want)
		}
	}
	if got := answered(t, kindInspect, 0, answer{}); got.holder.Held() || got.holder.Value != nil {
		t.Errorf("nobody became %+v", got.holder)
	}
}

func TestErrorsKeepTheirIdentity(t *testing.T) {
	h := filled[driver.Holder](t)
	for _, sent := range []error{
		&driver.HeldError{Holder: h}, &driver.NotHeldError{}, driver.ErrWithdrawn, driver.ErrPluginDied, driver.ErrClosed,
		fmt.Errorf("%w (%w): dial: %w", driver.ErrUnavailable, driver.ErrNotSent, context.DeadlineExceeded),
		fmt.Errorf("set %q: %w", "jobs", driver.ErrDenied), errors.New("of no kind"),
	} {
		got := answered(t, kindRelease, 0, answer{err: sent}).err
		if got == nil || got.Error() != sent.Error() {
			t.Errorf("%v arrived as %v", sent, got)
		}
		for _, is := range []error{
			driver.ErrHeld, driver.ErrNotHeld, driver.ErrWithdrawn, driver.ErrPluginDied, driver.ErrClosed, driver.ErrUnavailable,
			driver.ErrNotSent, driver.ErrDenied, context.DeadlineExceeded, context.Canceled,
		} {
			if errors.Is(got, is) != errors.Is(sent, is) {
				t.Errorf("%v arrived as %v, which is %v: %t", sent, got, is, errors.Is(got, is))
			}
		}
	}
}

func TestWhatIsTooLongIsNotSent(t *testing.T) {
	l := &Link{} // a call that sends anything would panic
	long := func(n int) string { return strings.Repeat("x", n+1) }
	for _, r := range []driver.Request{
		{Name: long(maxName)}, {Name: "\xff"}, {Owner: long(maxOwner)}, {Label: long(maxLabel)}, {Value: make([]byte, maxValue+1)},
	} {
		if _, err := l.TryAcquire(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("got %v", err)
		}
		if got := l.Batch(t.Context(), []driver.Op{{Request: r}}); !errors.Is(got[0].Err, driver.ErrInvalid) {
			t.Errorf("in a batch: got %v", got)
		}
	}
}

func TestLargeAnswersAreCut(t *testing.T) {
	h := driver.Holder{Owner: strings.Repeat("é", maxShown), Token: 1, Value: make([]byte, maxValue)}
	got := answered(t, kindInspect, 0, answer{holder: h}).holder
	if len(got.Owner) != maxShown || len(got.Value) != maxValue {
		t.Errorf("owner of %d bytes, value of %d", len(got.Owner), len(got.Value))
	}
	h.Value = make([]byte, maxValue+1)
	if got = answered(t, kindInspect, 0, answer{holder: h}).holder; got.Value != nil || !got.Held() {
		t.Errorf("a value that is too large arrived as %d bytes", len(got.Value))
	}
	h.Value = make([]byte, maxValue)
	results := make([]driver.Result, maxBatchOps)
	for i := range results {
		results[i].Err = &driver.HeldError{Holder: h}
	}
	var held *driver.HeldError
	for _, r := range answered(t, kindBatch, maxBatchOps, answer{results: results}).results {
		if !errors.As(r.Err, &held) || held.Holder.Value != nil || held.Holder.Token != 1 {
			t.Fatalf("in a batch that is too large: %v", r.Err)
		}
	}
	if p := appendAnswer(nil, 1, kindBatch, &answer{results: results}, nil); len(p) > maxFrame {
		t.Errorf("a frame of %d bytes", len(p))
	}
}
