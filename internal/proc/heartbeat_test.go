package proc

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestHeartbeatNotesStandstill(t *testing.T) {
	start := time.Now()
	b := &Heartbeat{last: start}
	at := start
	for _, gap := range []time.Duration{5, 14, 200, 5, 40} {
		at = at.Add(gap * time.Millisecond)
		b.note(at)
	}
	b.last = at.Add(time.Hour) // so that the time in which this test runs does not count
	if got, want := b.Stalled(start, at), 240*time.Millisecond; got != want {
		t.Errorf("the process stalled for %v, want %v", got, want)
	}
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats := 0
		h := StartHeartbeat(func(stall *Stall) {
			if stall != nil {
				t.Errorf("beat %d: it stalled: %v", beats, *stall)
			}
			beats++
		})
		time.Sleep(time.Second)
		if stalls := h.Stop(); len(stalls) > 0 || beats < 199 || beats > 200 {
			t.Errorf("%d beats in a second, %v", beats, stalls)
		}
		h.Stop()
	})
}
