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
	b.last = at.Add(time.Hour) // what this test itself takes is not looked at
	if got, want := b.Stood(start, at), 240*time.Millisecond; got != want {
		t.Errorf("the process stalled for %v, want %v", got, want)
	}
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats := 0
		h := StartHeartbeat(func(still *Still) {
			if still != nil {
				t.Errorf("beat %d: it stalled: %v", beats, *still)
			}
			beats++
		})
		time.Sleep(time.Second)
		if stills := h.Stop(); len(stills) > 0 || beats < 199 || beats > 200 {
			t.Errorf("%d beats in a second, %v", beats, stills)
		}
		h.Stop()
	})
}
