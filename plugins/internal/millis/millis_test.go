package millis

import (
	"testing"
	"time"
)

func TestUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 2*time.Millisecond - 1: 2,
	} {
		if got := Count(d); got != want {
			t.Errorf("Count(%v) is %d, want %d", d, got, want)
		}
		if got := Up(d); got != time.Duration(want)*time.Millisecond {
			t.Errorf("Up(%v) is %v, want %d ms", d, got, want)
		}
	}
}
