package kit

import (
	"testing"
	"time"
)

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 2*time.Millisecond - 1: 2,
	} {
		if got := Millis(d); got != want {
			t.Errorf("Millis(%v) is %d, want %d", d, got, want)
		}
		if got := UpToMillis(d); got != time.Duration(want)*time.Millisecond {
			t.Errorf("UpToMillis(%v) is %v, want %d ms", d, got, want)
		}
	}
}
