package results

import (
	"fmt"
	"math"
)

// MachineLoad is the load of the machine by other work during a run. A figure that the operating
// system does not provide is 0.
type MachineLoad struct {
	// OtherCPUs is the average number of CPUs used by processes other than lockbench and its
	// descendants.
	OtherCPUs float64 `json:"other_cpus"`
	// Steal is the share of the machine's processor time that the hypervisor
	// gave to other machines, from 0 to 1.
	Steal float64 `json:"steal"`
	// Throttled is the time in seconds for which the control group's CPU limit stopped processes.
	Throttled float64 `json:"throttled_s"`
	// ClockStep is the advance of the machine's clock minus the elapsed time, in seconds. It differs
	// from 0 if the clock was set or the machine slept. It is negative if the clock was set back.
	ClockStep float64 `json:"clock_step_s"`
	// Elapsed is the time for which the machine was observed, in seconds.
	Elapsed float64 `json:"elapsed_s"`
}

// These are the smallest shares at which the report warns that the machine was busy.
const (
	busyOthers    = 0.1  // of all CPUs
	busySteal     = 0.01 // of the processor time
	busyThrottled = 0.01 // of the time of the run
)

// steppedClock is the smallest step of the machine's clock, in seconds, that the report mentions.
// After such a step, a server that uses this clock may have ended leases at the wrong time.
const steppedClock = 1

// Busy returns warnings about the machine, or about each machine of a merged run. It warns of other
// work, of a CPU limit that held processes back, and of a clock that was set. The result is empty
// if there are no warnings.
func (m Manifest) Busy() []string {
	out := m.MachineLoad.words(m.Machine.Cores)
	for i, p := range m.Parts {
		for _, line := range p.MachineLoad.words(p.Machine.Cores) {
			out = append(out, fmt.Sprintf("%s (part %d)", line, i+1))
		}
	}
	return out
}

// words returns the warnings for one machine.
//
// Note: the load average and the time that processes wait for a CPU are not used, because the
// benchmark raises them, too.
func (b *MachineLoad) words(cores int) []string {
	if b == nil || b.Elapsed <= 0 {
		return nil
	}
	var out []string
	if cores > 0 && b.OtherCPUs >= busyOthers*float64(cores) {
		out = append(out, fmt.Sprintf("the machine was busy: processes that are not of this run used %.1f of its %d CPUs", b.OtherCPUs, cores))
	}
	if b.Steal >= busySteal {
		out = append(out, fmt.Sprintf("the machine was busy: its hypervisor gave %.0f %% of its processor time to others", 100*b.Steal))
	}
	if b.Throttled >= busyThrottled*b.Elapsed {
		out = append(out, fmt.Sprintf("the machine was held back: its control group was throttled for %.1f s of %.0f s", b.Throttled, b.Elapsed))
	}
	if math.Abs(b.ClockStep) >= steppedClock {
		out = append(out, fmt.Sprintf("the machine's clock was set, or the machine suspended: it went %.1f s in %.1f s; servers that go by it end leases at another time than their holders",
			b.Elapsed+b.ClockStep, b.Elapsed))
	}
	return out
}
