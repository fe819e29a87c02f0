package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

func overTheWire(t *testing.T, err error) error {
	t.Helper()
	b, marshalErr := proto.Marshal(&lockpb.Reply{Error: EncodeError(err, nil)})
	if marshalErr != nil {
		t.Fatal(marshalErr)
	}
	var reply lockpb.Reply
	if err := proto.Unmarshal(b, &reply); err != nil {
		t.Fatal(err)
	}
	return DecodeError(reply.Error)
}

func TestTableIsComplete(t *testing.T) {
	codes := map[lockpb.Error_Code]bool{lockpb.Error_OTHER: true}
	sentinels := map[error]bool{}
	for _, row := range table {
		if codes[row.code] || sentinels[row.sentinel] {
			t.Errorf("%v or %v is in the table twice", row.code, row.sentinel)
		}
		codes[row.code], sentinels[row.sentinel] = true, true
	}
	for code, name := range lockpb.Error_Code_name {
		if !codes[lockpb.Error_Code(code)] {
			t.Errorf("code %s has no sentinel", name)
		}
	}
}

func TestSentinelsKeepTheirIdentity(t *testing.T) {
	for _, row := range table {
		sent := fmt.Errorf("redis: set %q: %w", "jobs", row.sentinel)
		got := overTheWire(t, sent)
		if got.Error() != sent.Error() {
			t.Errorf("text %q became %q", sent, got)
		}
		for _, other := range table {
			if want := other.sentinel == row.sentinel; errors.Is(got, other.sentinel) != want {
				t.Errorf("%v arrived as %v: %t", row.sentinel, other.sentinel, !want)
			}
		}
		if again := EncodeError(got, nil); !proto.Equal(again, EncodeError(sent, nil)) {
			t.Errorf("%v sent back is %v", EncodeError(sent, nil), again)
		}
	}
}

func TestErrorsCanBeSeveralThings(t *testing.T) {
	sent := fmt.Errorf("%w (%w): dial: %w", driver.ErrUnavailable, driver.ErrNotSent, context.DeadlineExceeded)
	got := overTheWire(t, sent)
	for _, want := range []error{driver.ErrUnavailable, driver.ErrNotSent, context.DeadlineExceeded} {
		if !errors.Is(got, want) {
			t.Errorf("%v is not %v", got, want)
		}
	}
	if errors.Is(got, driver.ErrClosed) || errors.Is(got, context.Canceled) {
		t.Errorf("%v is too much", got)
	}
}

func TestErrorsWithoutIdentity(t *testing.T) {
	if overTheWire(t, nil) != nil {
		t.Error("nil became an error")
	}
	got := overTheWire(t, errors.New("bad \xff text"))
	if got == nil || got.Error() != "bad \uFFFD text" {
		t.Errorf("got %v", got)
	}
	// An error with an unknown code must stay an error.
	if err := DecodeError(&lockpb.Error{Codes: []lockpb.Error_Code{99}, Text: "new"}); err == nil || err.Error() != "new" {
		t.Errorf("got %v", err)
	}
}

func TestHoldersArriveWithTheirErrors(t *testing.T) {
	holder := driver.Holder{
		Name: "a\x00b", Owner: "\xff not ours", Label: "host:1", Value: []byte{}, Token: 7,
		TTL: 1500 * time.Microsecond, Waiters: -1,
	}
	for _, wrap := range []bool{false, true} {
		var held, notHeld error = &driver.HeldError{Holder: holder}, &driver.NotHeldError{Holder: holder}
		if wrap {
			held, notHeld = fmt.Errorf("redis: %w", held), fmt.Errorf("redis: %w", notHeld)
		}
		var gotHeld *driver.HeldError
		if err := overTheWire(t, held); !errors.As(err, &gotHeld) || !reflect.DeepEqual(gotHeld.Holder, holder) || err.Error() != held.Error() {
			t.Errorf("%v became %v", held, err)
		}
		var gotNotHeld *driver.NotHeldError
		if err := overTheWire(t, notHeld); !errors.As(err, &gotNotHeld) || !reflect.DeepEqual(gotNotHeld.Holder, holder) || err.Error() != notHeld.Error() {
			t.Errorf("%v became %v", notHeld, err)
		}
	}
	var bare *driver.HeldError
	if err := overTheWire(t, driver.ErrHeld); !errors.As(err, &bare) || bare.Holder.Held() {
		t.Errorf("a bare ErrHeld became %#v", err)
	}
}

func TestErrorsAreRedacted(t *testing.T) {
	var r Redactor
	r.SetConfig(map[string]string{"password": "hunter2", "address": "host:1"}, func(key, _ string) bool { return key == "password" })
	e := EncodeError(fmt.Errorf("%w: WRONGPASS hunter2 at host:1", driver.ErrDenied), &r)
	if e.Text != "backend refuses this client: WRONGPASS [secret] at host:1" {
		t.Errorf("got %q", e.Text)
	}
}
