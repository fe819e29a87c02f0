package core

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

// An error's text names backend, operation and lock only once, even if its cause names them too.
func TestErrorSaysWhatFailedOnce(t *testing.T) {
	down := errors.New(`redis: acquire "jobs": dial tcp: refused`)
	for _, c := range []struct {
		op, name string
		err      error
		want     string
	}{
		{"acquire", "jobs", down, `acquire "jobs" on redis: dial tcp: refused`},
		{"acquire", "other", down, `acquire "other" on redis: acquire "jobs": dial tcp: refused`},
		{"acquire", "jobs", fmt.Errorf(`%w; withdrawing it: redis: release "jobs": %w`, down, context.Canceled),
			`acquire "jobs" on redis: dial tcp: refused; withdrawing it: context canceled`},
		{"acquire", "jobs", fmt.Errorf(`outcome is unknown: redis: %w; withdrawing it: redis: %w`, down, context.Canceled),
			`acquire "jobs" on redis: outcome is unknown: dial tcp: refused; withdrawing it: context canceled`},
		{"wait", "jobs", fmt.Errorf(`%w: redis: wait for "jobs": %w: %w: maxmemory`, driver.ErrNotSent, ErrUnavailable, driver.ErrNotSent),
			`wait "jobs" on redis: backend is unavailable: maxmemory`},
		{"check", "", fmt.Errorf("%w: a: %w: policy; b: %w: %w: policy", ErrDenied, ErrDenied, ErrDenied, driver.ErrNotSent),
			"check on redis: backend refuses this client: a: policy; b: policy"},
		{"acquire", "a\"\n", errors.New(`redis: acquire "a\"\n": no`), `acquire "a\"\n" on redis: no`},
		{"check", "", errors.New("redis: check: no answer"), "check on redis: no answer"},
		{"check", "", errors.New("redis: no answer"), "check on redis: no answer"},
		{"list", "", errors.New(`redis: list "": no answer`), "list on redis: no answer"},
		{"close", "", ErrClosed, "close on redis: backend is closed"},
	} {
		if got := (&Error{Op: c.op, Backend: "redis", Name: c.name, Err: c.err}).Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := (&Error{Op: "check", Err: errors.New("a: b: c")}).Error(); got != "check on : a: b: c" {
		t.Errorf("without a backend: %q", got)
	}
}
