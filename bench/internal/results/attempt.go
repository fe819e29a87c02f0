package results

import (
	"fmt"
	"strings"
	"time"
)

// Outcome says what an attempt to acquire came to.
type Outcome uint8

// The outcomes.
const (
	Granted   Outcome = iota + 1
	Refused           // another owner had the lock
	Cancelled         // the caller gave up
	Failed            // any other error
)

// End says how a granted lease ended.
type End uint8

// The ends. An open one is that of an attempt without a grant, or of a lease
// whose end was not seen: nothing is known about it after its grant.
const (
	EndOpen          End = iota
	EndReleased          // released, and the store agreed
	EndReleaseFailed     // the release came back with an error
	EndLost              // the holder learned that it had lost the lease
	EndKilled            // the holder was killed
)

// Attempt is one try to acquire a lock, and what became of it. Times are
// nanoseconds on the run's clock, which starts at zero with the run and is
// read by all its processes.
type Attempt struct {
	Client int32 // caller, from 0 within the section
	Name   int32 // index into Section.Names
	// Asked is just before the acquire was called, Answered just after it came
	// back.
	Asked, Answered int64
	// Ended is when a holder ceased to act as one: just before the release was
	// called, or when it learned of the loss. Done is after the release came
	// back. Both are 0 for an open end.
	Ended, Done int64
	Token       uint64
	Outcome     Outcome
	End         End
}

// Hold is what an attempt that was granted says of who had the lock. Nothing is known
// of an open end but that it was held when the grant came back.
func (a Attempt) Hold() Hold {
	h := Hold{Host: int(a.Client), Name: int(a.Name), Token: a.Token, AskedNs: a.Asked, GrantedNs: a.Answered, ValidNs: a.Ended}
	switch a.End {
	case EndOpen:
		h.ValidNs = a.Answered
	case EndReleased, EndReleaseFailed:
		h.ReleaseNs = a.Ended
	}
	return h
}

// Section is what attempts have in common: one cell in one run.
type Section struct {
	CellName
	Kind    Kind     `json:"kind"`
	Fencing string   `json:"fencing"`
	Run     int      `json:"run"`
	Names   []string `json:"names"`
	// MetNs is when the cell began on the run's clock: for the parts of one
	// rendezvous that is one instant.
	MetNs int64 `json:"met_ns,omitempty"`
	// Interrupted reports whether the run ended before the cell did.
	Interrupted bool `json:"interrupted,omitempty"`
}

// CellName says of which cell a figure is: what the name of a line in results.txt
// tells apart, and the tag of a histogram.
type CellName struct {
	Scenario string        `json:"scenario"`
	Backend  string        `json:"backend"`         // name of the subject
	Mode     string        `json:"mode,omitempty"`  // of the scenario, where it has several
	Hosts    int           `json:"hosts,omitempty"` // processes of their own; 0: in lockbench
	Clients  int           `json:"clients"`         // callers of each host
	Keys     int           `json:"keys,omitempty"`  // locks to choose from; 0 where that is not varied
	Hold     time.Duration `json:"hold_ns,omitempty"`
	RTT      time.Duration `json:"rtt_ns,omitempty"` // between hosts and store, beyond that of the network
}

// Name is that in results.txt: "Acquire/backend=memory/clients=64".
func (n CellName) Name() string {
	tag := n.tag()
	return strings.ToUpper(tag[:1]) + tag[1:]
}

// tag is the name as histograms have it, in lower case.
func (n CellName) tag() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/backend=%s", n.Scenario, n.Backend)
	if n.Mode != "" {
		fmt.Fprintf(&b, "/mode=%s", n.Mode)
	}
	if n.Hosts > 0 {
		fmt.Fprintf(&b, "/hosts=%d", n.Hosts)
	}
	fmt.Fprintf(&b, "/clients=%d", n.Clients)
	if n.Keys > 0 {
		fmt.Fprintf(&b, "/keys=%d", n.Keys)
	}
	if n.Hold > 0 {
		fmt.Fprintf(&b, "/hold=%v", n.Hold)
	}
	if n.RTT > 0 {
		fmt.Fprintf(&b, "/rtt=%v", n.RTT)
	}
	return b.String()
}

// Cell is what one cell has measured in one run.
type Cell struct {
	Section
	Cycles  int           // acquires followed by a release, both without error
	Elapsed time.Duration // in which the cycles were done
	// Latencies of single operations ("acquire", "renew", "release", "call").
	Latencies map[string][]int64 // nanoseconds
	// Values are further figures by unit, written as they are.
	Values   map[string]float64
	Attempts []Attempt
	// Findings are what no figure says and nothing explains, for people.
	Findings []string
	// Modes are what was measured at the same time in place of one cell: of each are
	// set mode, names and what follows the section.
	Modes []Cell
}
