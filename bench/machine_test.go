package bench

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// TestMachineLoadOfOthers checks that OtherCPUs leaves out the CPU time of lockbench itself.
func TestMachineLoadOfOthers(t *testing.T) {
	begin := gauged{at: time.Unix(100, 0), wall: time.Unix(100, 0), busy: 50 * time.Second, all: 400 * time.Second, own: 10 * time.Second}
	end := gauged{at: time.Unix(110, 0), wall: time.Unix(191, 0), busy: 68 * time.Second, all: 420 * time.Second, own: 13 * time.Second,
		stolen: time.Second, throttled: 2 * time.Second}
	b := begin.until(end)
	if want := (results.MachineLoad{OtherCPUs: 1.5, Steal: 0.05, Throttled: 2, ClockStep: 81, Elapsed: 10}); *b != want {
		t.Errorf("%+v, want %+v", *b, want)
	}
	said := strings.Join((results.Manifest{Machine: results.Machine{Cores: 2}, MachineLoad: b}).Busy(), "\n")
	for _, want := range []string{"used 1.5 of its 2 CPUs", "5 % of its processor time", "throttled for 2.0 s of 10 s", "it went 91.0 s in 10.0 s"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q does not say %q", said, want)
		}
	}
	quiet := begin.until(gauged{at: end.at, wall: time.Unix(109, 1e8), busy: 54 * time.Second, all: end.all, own: 13900 * time.Millisecond})
	if said := (results.Manifest{Machine: results.Machine{Cores: 2}, MachineLoad: quiet}).Busy(); len(said) > 0 {
		t.Errorf("a machine that did nothing else: %q", said)
	}
}

func TestOwnTimeHasChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	before := ownTime()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if got := ownTime() - before; got < used-50*time.Millisecond {
		t.Errorf("%v, and a child alone has run %v", got, used)
	}
	if g := gauge(); g.all == 0 || g.busy == 0 {
		t.Errorf("pid %d: %+v", os.Getpid(), g)
	}
}
