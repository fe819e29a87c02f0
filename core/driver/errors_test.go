package driver

import (
	"testing"
	"time"
)

func TestErrorsNameTheHolder(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&HeldError{}, "lock is held"},
		{&HeldError{Holder{Label: "host:1\x1b[1m", Owner: "x", TTL: time.Second}}, "lock is held by host:1\ufffd[1m for another 1s"},
		{&HeldError{Holder{Owner: "x", TTL: -1}}, "lock is held by owner x, without an end"},
		{&HeldError{Holder{TTL: 250 * time.Millisecond}}, "lock is held for another 250ms"},
		{&NotHeldError{}, "lock is not held by this owner"},
		{&NotHeldError{Holder{Owner: "x"}}, "lock is not held by this owner: held by owner x"},
		{&NotHeldError{Holder{TTL: time.Second}}, "lock is not held by this owner"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
