package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A short task writes nothing to a log.
func TestProgressInALog(t *testing.T) {
	for _, tt := range []struct {
		step  time.Duration
		lines []string
	}{
		{time.Second / 20, nil},
		{10 * time.Second, []string{"10 cells, about 1m40s", "3/10, 1m10s left: cell 4", "6/10, 40s left: cell 7", "9/10, 10s left: cell 10"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			p := newProgress(&out, "starting")
			p.Begin(10, 10*tt.step)
			for i := range 10 {
				p.Step(fmt.Sprintf("cell %d", i+1))
				time.Sleep(tt.step)
			}
			p.End()
			if got := strings.Split(strings.TrimSpace(out.String()), "\n"); strings.Join(got, "|") != strings.Join(tt.lines, "|") {
				t.Errorf("steps of %v: %q", tt.step, got)
			}
		})
	}
}
