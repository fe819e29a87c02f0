// Package check judges the holds of locks that hosts report. A hold says which host had which lock,
// with which token, from when to when.
//
// A [Checker] judges the attempts of measurements. A [Cell] sums up how one backend behaved under
// one fault. Both need only the files of a run, so a saved run can be judged again. [Judge] checks
// all claims for one played schedule. The rules compare times that the holders measured. A hold
// begins when the host has got the grant, and ends just before the host sends the release. So a
// slow reply never looks like a violation.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
)

// keep is the largest number of violations of one rule that a verdict describes for each subject.
const keep = 5

// Violation says which claim a backend has broken, and which holder did what and when.
type Violation struct {
	Rule    claim.Rule `json:"rule"`
	Backend string     `json:"-"`
	What    string     `json:"what"`
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Rule, v.What) }

// The both function describes two holds that together break a rule. who(n) returns a holder's name.
func both(rule claim.Rule, first, second results.Hold, who func(n int) string) string {
	what := "two holders at once"
	if rule == claim.Token {
		what = "the later grant has no higher token"
	}
	describe := func(h results.Hold) string {
		return fmt.Sprintf("%s asked at %s, held from %s until %s with token %d", who(h.Host), at(h.AskedNs), at(h.GrantedNs), at(h.Until()), h.Token)
	}
	return fmt.Sprintf("%s; %s; %s", what, describe(first), describe(second))
}

func at(ns int64) string { return time.Duration(ns).String() }

// Subject sums up the attempts and violations of one backend, or of one baseline (another library).
type Subject struct {
	Backend string       `json:"backend"`
	Kind    results.Kind `json:"kind"`
	Fencing string       `json:"fencing"`
	// Attempts counts all attempts. The next four fields count the attempts with each outcome.
	Attempts  int `json:"attempts"`
	Granted   int `json:"granted"`
	Refused   int `json:"refused"`
	Cancelled int `json:"cancelled"`
	Failed    int `json:"failed"`
	// Overlaps and Tokens each count all violations of one rule, even those without a description.
	Overlaps int `json:"overlaps"`
	Tokens   int `json:"tokens_not_rising"`
}

type Verdict struct {
	Subjects   []Subject   // by name
	Violations []Violation // for each subject, at most five of each rule
	// Cells are the findings for each backend and fault, in the order of the run.
	Cells []Cell
	// Truncated says why a file of the run ends early. It is nil if the files are complete.
	Truncated error
}

func (v Verdict) Granted() int {
	n := 0
	for _, s := range v.Subjects {
		n += s.Granted
	}
	for _, c := range v.Cells {
		n += c.Grants
	}
	return n
}

// Unsafe adds up the violations of backends, and the pairs of a backend and a fault under which the
// backend broke a claim. It leaves out baselines, for which lockbench makes no claims.
func (v Verdict) Unsafe() int {
	n := 0
	for _, s := range v.Subjects {
		if s.Kind == results.KindPlugin {
			n += s.Overlaps + s.Tokens
		}
	}
	for _, c := range v.Cells {
		if c.Unsafe() {
			n++
		}
	}
	return n
}

// Checker judges attempts, section by section. A section has the attempts of one measurement in one
// run. Only one goroutine may use a Checker.
type Checker struct {
	subjects map[string]*Subject
	names    map[[2]string]*grants // by backend and name
	found    []Violation
}

func New() *Checker {
	return &Checker{subjects: map[string]*Subject{}, names: map[[2]string]*grants{}}
}

// Add judges one section in O(n log n) time for n attempts. The caller must add the sections of one
// backend or baseline in the order of their times.
func (c *Checker) Add(s results.Section, attempts []results.Attempt) {
	sub := c.subjects[s.Backend]
	if sub == nil {
		sub = &Subject{Backend: s.Backend, Kind: s.Kind, Fencing: s.Fencing}
		c.subjects[s.Backend] = sub
	}
	holds := make([][]results.Hold, len(s.Names))
	for _, a := range attempts {
		sub.count(a)
		if a.Outcome == results.Granted && a.Name >= 0 && int(a.Name) < len(s.Names) {
			holds[a.Name] = append(holds[a.Name], a.Hold())
		}
	}
	for i, of := range holds {
		key := [2]string{s.Backend, s.Names[i]}
		if c.names[key] == nil {
			c.names[key] = &grants{}
		}
		c.names[key].add(of, s.Fencing != "none", func(rule claim.Rule, first, second results.Hold) {
			count := &sub.Tokens
			if rule == claim.Overlap {
				count = &sub.Overlaps
			}
			if *count++; *count <= keep {
				what := both(rule, first, second, func(n int) string { return fmt.Sprint("caller ", n) })
				c.found = append(c.found, Violation{rule, s.Backend, fmt.Sprintf("%s, lock %q, %s run %d: %s", s.Backend, s.Names[i], s.Scenario, s.Run, what)})
			}
		})
	}
}

func (s *Subject) count(a results.Attempt) {
	s.Attempts++
	switch a.Outcome {
	case results.Granted:
		s.Granted++
	case results.Refused:
		s.Refused++
	case results.Cancelled:
		s.Cancelled++
	default:
		s.Failed++
	}
}

// Verdict returns the judgement of all sections added so far.
func (c *Checker) Verdict() Verdict {
	v := Verdict{Violations: slices.Clone(c.found)}
	for _, s := range c.subjects {
		v.Subjects = append(v.Subjects, *s)
	}
	slices.SortFunc(v.Subjects, func(a, b Subject) int { return cmp.Compare(a.Backend, b.Backend) })
	return v
}

// Dir judges the result folder dir. If its file of events or of rounds ends early, Dir judges the
// part before the end, and sets Verdict.Truncated.
func Dir(dir string) (Verdict, error) {
	c := New()
	err := results.ScanEvents(dir, func(s results.Section, a []results.Attempt) error {
		c.Add(s, a)
		return nil
	})
	if err != nil && !errors.Is(err, results.ErrTruncated) {
		return Verdict{}, err
	}
	v := c.Verdict()
	rounds, roundsErr := results.ReadRounds(dir)
	v.Cells = Cells(rounds)
	err = errors.Join(err, roundsErr)
	if errors.Is(err, results.ErrTruncated) {
		v.Truncated, err = err, nil
	}
	return v, err
}
