// Package check judges the safety of a run from its recorded attempts: no two
// holders at once, and tokens that rise.
//
// It needs the events only, so a saved run can be judged again. Both checks
// are sound: they compare moments that the holders themselves have seen, a
// grant from when it came back and an end from before it was sent, so a
// violation is never an artefact of a slow reply.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// keep bounds how many violations of each rule by one subject are kept with
// their details.
const keep = 5

// Violation is a broken rule, with the two grants that broke it.
type Violation struct {
	Rule     claim.Rule
	Backend  string
	Name     string
	Scenario string
	Run      int // of Second
	First    results.Attempt
	Second   results.Attempt
}

// String says in one line who did what and when.
func (v Violation) String() string {
	what := "two holders at once"
	if v.Rule == claim.Token {
		what = "the later grant has no higher token"
	}
	return fmt.Sprintf("%s: %s, lock %q, %s run %d: %s; caller %d %s; caller %d %s",
		v.Rule, v.Backend, v.Name, v.Scenario, v.Run, what,
		v.First.Client, describe(v.First), v.Second.Client, describe(v.Second))
}

func describe(a results.Attempt) string {
	until := "until the end"
	if a.End != results.EndOpen {
		until = "until " + at(a.Ended)
	}
	return fmt.Sprintf("asked at %s, held from %s %s with token %d", at(a.Asked), at(a.Answered), until, a.Token)
}

func at(ns int64) string { return time.Duration(ns).String() }

// Subject sums up what was seen of one subject.
type Subject struct {
	Backend string
	Kind    results.Kind
	Fencing string
	// Attempts are all; the others are those of each outcome.
	Attempts, Granted, Refused, Cancelled, Failed int
	// Overlaps and Tokens count the violations of each rule, kept or not.
	Overlaps, Tokens int
}

// Verdict is the judgement of a run.
type Verdict struct {
	Subjects   []Subject   // by name
	Violations []Violation // at most five of each rule by each subject
	// Cells are those of the safety scenario, in the order of the run.
	Cells []Cell
	// Truncated says why the events end early; nil when they are whole.
	Truncated error
}

// Granted is how many grants were checked.
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

// Unsafe counts the violations of backends, and the cells of the safety
// scenario in which one of their claims is broken. Violations of baselines are shown and
// not counted: they are measured, not vouched for.
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

// Checker judges sections as they come. It is used by one goroutine.
type Checker struct {
	subjects map[string]*Subject
	names    map[nameKey]*nameState
	found    []Violation
}

type nameKey struct{ backend, name string }

// nameState is what later sections are compared with.
type nameState struct {
	lastEnd  results.Attempt // of the grants so far, the one that ended last
	maxToken results.Attempt // of the grants so far, the one with the highest token
	any      bool
}

// New returns an empty checker.
func New() *Checker {
	return &Checker{subjects: map[string]*Subject{}, names: map[nameKey]*nameState{}}
}

// Add judges one section, in O(n log n) of its attempts. Sections of one
// subject are added in the order of their times.
func (c *Checker) Add(s results.Section, attempts []results.Attempt) {
	sub := c.subjects[s.Backend]
	if sub == nil {
		sub = &Subject{Backend: s.Backend, Kind: s.Kind, Fencing: s.Fencing}
		c.subjects[s.Backend] = sub
	}
	grants := make([][]results.Attempt, len(s.Names))
	for _, a := range attempts {
		sub.count(a)
		if a.Outcome == results.Granted && a.Name >= 0 && int(a.Name) < len(s.Names) {
			grants[a.Name] = append(grants[a.Name], a)
		}
	}
	for i, g := range grants {
		if len(g) == 0 {
			continue
		}
		key := nameKey{s.Backend, s.Names[i]}
		st := c.names[key]
		if st == nil {
			st = &nameState{}
			c.names[key] = st
		}
		report := func(rule claim.Rule, first, second results.Attempt) {
			c.report(sub, Violation{Rule: rule, Backend: s.Backend, Name: s.Names[i], Scenario: s.Scenario, Run: s.Run, First: first, Second: second})
		}
		if s.Fencing != "none" {
			checkTokens(st, g, report)
		}
		checkOverlap(st, g, report)
		st.any = true
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

func (c *Checker) report(sub *Subject, v Violation) {
	count := &sub.Tokens
	if v.Rule == claim.Overlap {
		count = &sub.Overlaps
	}
	if *count++; *count <= keep {
		c.found = append(c.found, v)
	}
}

// Verdict returns the judgement of what was added so far.
func (c *Checker) Verdict() Verdict {
	v := Verdict{Violations: slices.Clone(c.found)}
	for _, s := range c.subjects {
		v.Subjects = append(v.Subjects, *s)
	}
	slices.SortFunc(v.Subjects, func(a, b Subject) int { return cmp.Compare(a.Backend, b.Backend) })
	return v
}

// Dir judges the folder dir. Events that end early are judged up to the cut,
// and Verdict.Truncated says so.
func Dir(dir string) (Verdict, error) {
	f, err := os.Open(filepath.Join(dir, results.EventsFile))
	if err != nil {
		return Verdict{}, err
	}
	defer f.Close()
	c := New()
	err = results.ReadEvents(f, func(s results.Section, a []results.Attempt) error {
		c.Add(s, a)
		return nil
	})
	v := c.Verdict()
	rounds, roundsErr := results.ReadRounds(dir)
	v.Cells = Cells(rounds)
	err = errors.Join(err, roundsErr)
	if errors.Is(err, results.ErrTruncated) {
		v.Truncated, err = err, nil
	}
	return v, err
}
