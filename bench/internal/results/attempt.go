package results

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Outcome says how an attempt to acquire ended.
type Outcome uint8

const (
	Granted   Outcome = iota + 1
	Refused           // another owner had the lock
	Cancelled         // the caller gave up
	Failed            // any other error
)

// End says how a granted lease ended.
type End uint8

// EndOpen means that there was no grant, or that no process saw how the lease ended. After a grant,
// such a lease may have ended at any time.
const (
	EndOpen          End = iota
	EndReleased          // released, and the store confirmed the release
	EndReleaseFailed     // the release returned an error
	EndLost              // the holder learned that it had lost the lease
	EndKilled            // the holder was killed
)

// Attempt is one attempt to acquire a lock, with its result. Times are in nanoseconds since the run
// began. All processes of a run read the same clock.
type Attempt struct {
	Client int32 // number of the caller, from 0 in each section
	Name   int32 // index into Section.Names
	// Asked is the time just before the call to acquire. Answered is the time just after this call.
	Asked, Answered int64
	// Ended is when the holder stopped acting as the holder: just before its call to release, or at
	// the latest when it learned that the lease was lost. Done is just after release returned, or when
	// the holder learned that the lease was lost. Both are 0 if End is EndOpen.
	Ended, Done int64
	Token       uint64
	Outcome     Outcome
	End         End
}

// Hold returns the attempt as a Hold, which says when the lock was held. If the end of the lease is
// unknown (EndOpen), the Hold covers only the moment at which the acquire returned.
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

// Section has what all attempts of one cell in one run have in common. A cell is the measurement of
// one backend, baseline or floor (calls that do no work) under one load.
type Section struct {
	CellName
	Kind    Kind     `json:"kind"`
	Fencing string   `json:"fencing"`
	Run     int      `json:"run"`
	Names   []string `json:"names"`
	// MetNs is when the cell began, in ns since the run began. In runs on several machines that
	// measure together, it is the same moment on all machines.
	MetNs int64 `json:"met_ns,omitempty"`
	// Interrupted reports that the cell has no figures, because it failed or was interrupted.
	Interrupted bool `json:"interrupted,omitempty"`
}

// CellName identifies the measurement of one subject under one load in the files of a folder.
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

// Name returns the name for results.txt, for example "Acquire/backend=memory/clients=64".
func (n CellName) Name() string {
	tag := n.tag()
	return strings.ToUpper(tag[:1]) + tag[1:]
}

// tag returns the name as histograms have it: like Name, but with a small first letter.
func (n CellName) tag() string {
	out := n.Scenario
	for _, p := range n.parts() {
		if v := reflect.ValueOf(p.value).Elem(); !v.IsZero() || p.key == "backend" || p.key == "clients" {
			out += fmt.Sprintf("/%s=%v", p.key, v)
		}
	}
	return out
}

type tagPart struct {
	key   string
	value any // a pointer to the field of the CellName
}

// parts returns the parts of the name after the scenario, in their order.
func (n *CellName) parts() []tagPart {
	return []tagPart{
		{"backend", &n.Backend}, {"mode", &n.Mode}, {"hosts", &n.Hosts}, {"clients", &n.Clients},
		{"keys", &n.Keys}, {"hold", &n.Hold}, {"rtt", &n.RTT},
	}
}

// Cell has the measurements of one run for one subject under one load.
type Cell struct {
	Section
	Cycles  int           // acquires followed by a release, both without error
	Elapsed time.Duration // the time that the cycles took together
	// Latencies has the times of operations such as "acquire", "renew", "release" and "call".
	Latencies map[string][]int64 // nanoseconds
	// Values has further figures, with their units as keys. They are written to results.txt unchanged.
	Values   map[string]float64
	Attempts []Attempt
	// Findings are texts for the user about unexplained events that no figure shows.
	Findings []string
	// Modes has cells that were measured at the same time. If Modes is not empty, its cells are
	// written in place of this cell. Each of them has its own mode, names and figures.
	Modes []Cell
}
