package scenario

import (
	"errors"
	"os"
	"testing"
)

func TestTicks(t *testing.T) {
	got, err := ticksOf("7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 1 0 99 0 0")
	if got != 42 || err != nil {
		t.Errorf("user 31 and system 11: got %d, %v", got, err)
	}
	for _, damaged := range []string{"", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194560 100 0 0 0 x 11 0"} {
		if _, err := ticksOf(damaged); err == nil {
			t.Errorf("%q: no error", damaged)
		}
	}
	before, err := processorTime(os.Getpid())
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	for after := before; after == before && err == nil; {
		after, err = processorTime(os.Getpid()) // until this has used a tick
	}
	if err != nil {
		t.Error(err)
	}
}
