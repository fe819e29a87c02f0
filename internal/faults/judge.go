package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
)

// Violation is a claim that a schedule has broken.
type Violation struct {
	Rule claim.Rule `json:"rule"`
	What string     `json:"what"`
}

// verdict is the judgement of one history.
type verdict struct {
	violations []Violation
	// exempt are those of which it is written down that they happen.
	exempt []Violation
	grants int
	// starved reports whether the machine gave the processes too little time for
	// claims that have times, and unjudged whether such a claim seemed broken.
	starved, unjudged bool
}

// judge is the state of one judgement.
type judge struct {
	h       *History
	backend Backend
	made    map[int][]claim.Condition // by host; everywhere for all
	stops   [][]span                  // of each host: when it may not have been granted anything
	silent  [][]span                  // of each host: when it may not have been served at all
	halts   [][]span                  // of each host: when it, or the explorer, did not run
	out     verdict
}

// span is a time from the first to the second.
type span [2]int64

// judgeOf judges what was seen of a schedule by the claims of its backend.
func judgeOf(h *History, b Backend) verdict {
	j := &judge{h: h, backend: b}
	j.circumstances()
	j.exclusion()
	j.callbacks()
	j.calls()
	j.losses()
	j.stalls()
	j.leftovers()
	return j.out
}

// circumstances sums up what the events did, and what the machine did.
func (j *judge) circumstances() {
	hosts := len(j.h.Schedule.Hosts)
	j.stops, j.silent, j.halts, j.made = make([][]span, hosts), make([][]span, hosts), make([][]span, hosts), map[int][]claim.Condition{}
	for _, m := range j.h.Marks {
		a := m.action()
		if m.From == 0 {
			continue
		}
		whom := everywhere
		if a.On == OnHost {
			whom = m.Target
		}
		j.made[whom] = append(j.made[whom], a.Makes...)
		for host := range hosts {
			switch {
			case a.Stops == StopsAll, a.Stops == StopsHost && m.Target == host:
				j.silent[host] = append(j.silent[host], a.stopped(m)...)
				fallthrough
			case a.Stops == StopsGrants:
				j.stops[host] = append(j.stops[host], a.stopped(m)...)
			}
		}
	}
	j.out.starved = j.h.RunQueue > starvedRunQueue || j.h.Waited > starvedFor
	for _, gap := range j.h.Gaps {
		j.out.starved = j.out.starved || gap[1]-gap[0] > int64(starvedFor)
	}
	for host, seen := range j.h.Seen {
		j.halts[host] = slices.Clone(j.h.Gaps)
		for _, halt := range seen.Halts {
			j.halts[host] = append(j.halts[host], span{halt.From, cmp.Or(halt.To, j.h.Stopped)})
			// An event that is under way, or was a second ago, may stop a host.
			disturbed := j.interrupted(span{halt.From - int64(time.Second), halt.From})
			j.out.starved = j.out.starved || halt.To-halt.From > int64(starvedFor) && !disturbed
		}
	}
}

// stopped is when an action has stopped those whom it stops.
func (a Action) stopped(m Mark) []span {
	most := int64(a.StopsFor)
	if most == 0 || m.To-m.From < most {
		return []span{{m.From, m.To + int64(a.Recovers)}}
	}
	return []span{{m.From, m.From + most}, {m.To, m.To + int64(a.Recovers)}}
}

// starvedFor is the silence of the explorer's heartbeat, or of one of a host that
// no action explains, or for how long a server had no processor, from which on
// claims that have times are not judged.
const starvedFor = 200 * time.Millisecond

// starvedRunQueue is how many threads each processor has to run on a machine on
// which they are not judged, either: servers and plugins are then late, whose
// heartbeats nobody hears.
const starvedRunQueue = 8

// overlap is how much of spans, which may overlap, lies in a time.
func overlap(spans []span, in span) time.Duration {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a[0], b[0]) })
	var sum int64
	at := in[0]
	for _, s := range sorted {
		from, to := max(s[0], at), min(s[1], in[1])
		if to > from {
			sum += to - from
			at = to
		}
	}
	return time.Duration(sum)
}

// everywhere stands for all hosts: what was done to one host excuses no other.
const everywhere = -1

// broken notes a claim that does not hold on a host, or everywhere, unless it is
// exempt.
func (j *judge) broken(host int, rule claim.Rule, format string, args ...any) {
	v := Violation{rule, fmt.Sprintf(format, args...)}
	made := j.made[everywhere]
	if host != everywhere {
		made = slices.Concat(made, j.made[host])
	}
	if _, known := claim.TermsOf(j.backend.Name).Exempt(rule, made); known {
		j.out.exempt = append(j.out.exempt, v)
		return
	}
	j.out.violations = append(j.out.violations, v)
}

// late notes a claim that has a time. A starved machine breaks none.
func (j *judge) late(host int, rule claim.Rule, format string, args ...any) {
	if j.out.starved {
		j.out.unjudged = true
		return
	}
	j.broken(host, rule, format, args...)
}

func (j *judge) since(at int64) time.Duration { return ms(at - j.h.Began) }

func ms(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }

// endedAt is when an event has ended a host, 0 if none has.
func (j *judge) endedAt(host int) int64 {
	for _, m := range j.h.Marks {
		if m.action().Ends && m.Target == host && m.From > 0 {
			return m.From
		}
	}
	return 0
}

// interrupted reports whether an event happened in a time.
func (j *judge) interrupted(in span) bool {
	return slices.ContainsFunc(j.h.Marks, func(m Mark) bool { return m.From > 0 && m.From < in[1] && m.To > in[0] })
}

// leftovers judges that nothing is left when all hosts have ended.
func (j *judge) leftovers() {
	for _, what := range j.h.Left {
		j.broken(everywhere, claim.Leaked, "%s", what)
	}
}
