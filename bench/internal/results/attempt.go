package results

import (
	"fmt"
	"strings"
	"time"
)

// Outcome says how an attempt to acquire ended.
type Outcome uint8

// These are the outcomes of an attempt.
const (
	Granted   Outcome = iota + 1
	Refused           // another owner had the lock
	Cancelled         // the caller gave up
	Failed            // any other error
)

// End says how a granted lease ended.
type End uint8

// These are the ends. EndOpen is for an attempt without a grant, or a lease whose
// end was not seen. Such a lease may have ended at any time after its grant.
const (
	EndOpen          End = iota
	EndReleased          // released, and the store confirmed the release
	EndReleaseFailed     // the release returned an error
	EndLost              // the holder learned that it had lost the lease
	EndKilled            // the holder was killed
)

// Attempt is one attempt to acquire a lock, with its result. Times are nanoseconds on the
// run's clock, which starts at zero with the run. All processes of the run use this clock.
type Attempt struct {
	Client int32 // number of the caller, from 0 in each section
	Name   int32 // index into Section.Names
	// Asked is just before the acquire was called, and Answered is just after it returned.
	Asked, Answered int64
	// Ended is when the holder stopped acting as the holder: just before the
	// release was called, or when it learned of the loss. Done is after the release
	// returned. Ended and Done are 0 for EndOpen.
	Ended, Done int64
	Token       uint64
	Outcome     Outcome
	End         End
}

// Hold returns the hold of a granted attempt. With EndOpen it says only that the
// lock was held when the acquire returned.
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

// Section has what all attempts of one cell (one measurement) in one run have in common.
type Section struct {
	CellName
	Kind    Kind     `json:"kind"`
	Fencing string   `json:"fencing"`
	Run     int      `json:"run"`
	Names   []string `json:"names"`
	// MetNs is when the cell began, on the run's clock. Runs that measure together
	// on several machines begin a cell at the same time.
	MetNs int64 `json:"met_ns,omitempty"`
	// Interrupted reports whether the run ended before the cell had ended.
	Interrupted bool `json:"interrupted,omitempty"`
}

// CellName names the cell of a figure. Its fields distinguish the lines of
// results.txt and the tags of histograms.
type CellName struct {
	Scenario string        `json:"scenario"`
	Backend  string        `json:"backend"`         // name of the subject
	Mode     string        `json:"mode,omitempty"`  // mode of the scenario, if it has several
	Hosts    int           `json:"hosts,omitempty"` // number of host processes; 0: lockbench itself
	Clients  int           `json:"clients"`         // callers of each host
	Keys     int           `json:"keys,omitempty"`  // number of locks to choose from; 0 if the number does not vary
	Hold     time.Duration `json:"hold_ns,omitempty"`
	RTT      time.Duration `json:"rtt_ns,omitempty"` // added to each round trip between hosts and store
}

// Name returns the name in results.txt: "Acquire/backend=memory/clients=64".
func (n CellName) Name() string {
	tag := n.tag()
	return strings.ToUpper(tag[:1]) + tag[1:]
}

// tag returns the name in histograms, in lower case.
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

// Cell is the measurement of one cell in one run.
type Cell struct {
	Section
	Cycles  int           // acquires followed by a release, both without error
	Elapsed time.Duration // the time that the cycles took together
	// Latencies of single operations ("acquire", "renew", "release", "call").
	Latencies map[string][]int64 // nanoseconds
	// Values are further figures by unit, written unchanged.
	Values   map[string]float64
	Attempts []Attempt
	// Findings are texts for people about unexplained events that no figure shows.
	Findings []string
	// Modes are cells that were measured at the same time and replace this cell.
	// Each of them has a mode, names, and the fields after Section.
	Modes []Cell
}
