package results

import (
	"fmt"
	"math"
)

// MachineLoad is the load of the machine by other work during a run. If the operating system does
// not provide a figure, the figure is 0.
type MachineLoad struct {
	// OtherCPUs is the average number of CPUs that other processes used. Lockbench and its descendants
	// do not count as others.
	OtherCPUs float64 `json:"other_cpus"`
	// Steal is the share of the machine's processor time that the hypervisor
	// gave to other machines, from 0 to 1.
	Steal float64 `json:"steal"`
	// Throttled is the time, in seconds, for which the control group's CPU limit stopped processes.
	Throttled float64 `json:"throttled_s"`
	// ClockStep is the advance of the clock of the machine minus the elapsed time, in seconds. It is
	// not 0 if the clock was set or the machine slept, and negative if the clock was set back.
	ClockStep float64 `json:"clock_step_s"`
	// Elapsed is the time, in seconds, for which lockbench watched the load of the machine.
	Elapsed float64 `json:"elapsed_s"`
}

// If one of these shares is reached, the report warns that the machine was busy.
const (
	busyOthers    = 0.1  // of all CPUs
	busySteal     = 0.01 // of the processor time
	busyThrottled = 0.01 // of the time of the run
)

// steppedClock is the smallest step of the machine's clock, in seconds, that causes a warning.
// After such a step, a server that uses this clock may have ended leases too early or too late.
const steppedClock = 1

// Busy returns warnings about the machine or, for a merged run, about each machine. It warns of
// other work, of a CPU limit that stopped processes, and of a clock that was set. It returns
// nothing if there is nothing to warn of.
func (m Manifest) Busy() []string {
	out := m.MachineLoad.words(m.Machine.Cores)
	for i, p := range m.Parts {
		for _, line := range p.MachineLoad.words(p.Machine.Cores) {
			out = append(out, fmt.Sprintf("%s (part %d)", line, i+1))
		}
	}
	return out
}

// words returns the warnings about one machine.
//
// Note: do not use the load average or the time that processes wait for a CPU, because the
// benchmark itself raises both.
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
