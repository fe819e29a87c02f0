package faults

import (
	"os"
	"testing"

	"github.com/lockbench/lockbench/internal/proc"
)

// TestStress checks that Stress starts processes, and that its end function ends these processes.
func TestStress(t *testing.T) {
	before := len(proc.Family(os.Getpid()))
	end, err := Stress(t.Context())
	during := len(proc.Family(os.Getpid()))
	if err := end(); err != nil {
		t.Error(err)
	}
	if after := len(proc.Family(os.Getpid())); err != nil || during <= before || after != before {
		t.Errorf("%v: %d processes, then %d, then %d", err, before, during, after)
	}
}
