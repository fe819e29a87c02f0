package results

import (
	"fmt"
	"math"
)

// MachineLoad is the load of the machine by other work than the run. It was observed from
// before the first cell to after the last cell. Figures that a system does not provide are 0.
type MachineLoad struct {
	// OtherCPUs is how many CPUs, on average, worked for processes other than
	// lockbench and its descendants.
	OtherCPUs float64 `json:"other_cpus"`
	// Steal is the share of the machine's processor time that the hypervisor
	// gave to other machines, from 0 to 1.
	Steal float64 `json:"steal"`
	// Throttled is how long the control group was throttled, in seconds.
	Throttled float64 `json:"throttled_s"`
	// ClockStep is how many seconds the machine's clock moved more than the elapsed time, because
	// it was set or the machine was suspended. It is negative if the clock was set back.
	ClockStep float64 `json:"clock_step_s"`
	// Elapsed is how long the machine was observed, in seconds.
	Elapsed float64 `json:"elapsed_s"`
}

// If one of these shares is reached, the machine is reported as busy with other work.
const (
	busyOthers    = 0.1  // of all CPUs
	busySteal     = 0.01 // of the processor time
	busyThrottled = 0.01 // of the time of the run
)

// steppedClock is the smallest step of the clock, in seconds, that is reported.
// Such a step may have ended leases.
const steppedClock = 1

// Busy says, for people, how busy other work kept the machine, or the machines of
// the parts. It is empty if no machine was busy.
func (m Manifest) Busy() []string {
	out := m.MachineLoad.words(m.Machine.Cores)
	for i, p := range m.Parts {
		for _, line := range p.MachineLoad.words(p.Machine.Cores) {
			out = append(out, fmt.Sprintf("%s (part %d)", line, i+1))
		}
	}
	return out
}

// words returns the lines of Busy for one run.
//
// Note: a benchmark also raises the load average and the time of waiting for a CPU,
// so these figures are not used.
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
