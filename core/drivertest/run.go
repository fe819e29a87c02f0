package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// parallel is the number of cases that run at once. Cases mostly wait, so they need few CPUs.
const parallel = 4

// tries is the largest number of runs of a case. Only a stall of this process makes it run again.
const tries = 5

type suite struct {
	mk    func(T) *Harness
	props driver.Properties
	slots chan struct{}
	turn  chan struct{} // holds a value while a case takes its slots, so that one case can get all of them
}

func makeSuite(mk func(T) *Harness) *suite {
	return &suite{mk: mk, slots: make(chan struct{}, parallel), turn: make(chan struct{}, 1)}
}

// newSuite opens the backend once, because some properties come from the server.
func newSuite(ctx context.Context, mk func(T) *Harness) (*suite, error) {
	s := makeSuite(mk)
	t := newTrial(ctx)
	ok, _, log := t.run(30*time.Second, func() {
		b := mk(t).Open(t)
		wantNil(t, b.Check(t.Context()), "the backend does not pass its own Check")
		s.props = b.Properties()
	})
	if !ok {
		return nil, errors.New("drivertest: " + strings.TrimSpace(log))
	}
	return s, nil
}

// enter waits until the case c may run. When c has ended, the caller must call the function leave.
func (s *suite) enter(c Case) (leave func()) {
	n := 1
	if c.Alone || slices.Contains(c.Needs, NeedStore) {
		n = cap(s.slots)
	}
	s.turn <- struct{}{}
	for range n {
		s.slots <- struct{}{}
	}
	<-s.turn
	return func() {
		for range n {
			<-s.slots
		}
	}
}

// The run method runs the case c. If a stall of this process spoiled a run, and the run failed for
// no other reason, the case runs again, but has at most as many runs as the constant tries says.
func (s *suite) run(ctx context.Context, c Case) CaseResult {
	defer s.enter(c)()
	if c.Excuse != nil {
		if reason := c.Excuse(s.props); reason != "" {
			return CaseResult{Case: c, Outcome: NA, Reason: reason}
		}
	}
	var log strings.Builder
	for start, try := time.Now(), 1; ; try++ {
		r, undecided := s.try(ctx, c)
		if undecided != "" {
			fmt.Fprintf(&log, "run %d could not be judged: %s\n", try, undecided)
			if r.Outcome != Fail && try < tries && ctx.Err() == nil {
				continue
			}
			r.Outcome = Fail
		}
		if try == tries && undecided != "" {
			fmt.Fprintln(&log, "the machine is too busy to judge this")
		}
		if r.Outcome == Fail {
			r.Log += c.Name + "\n" + c.Explain + "\n"
		}
		r.Took, r.Log = time.Since(start), log.String()+r.Log
		return r
	}
}

// try runs the case c once. If the process was stalled, which may have spoiled the run, the string
// undecided says so. r.Outcome is Fail if c failed in a way that no stall explains.
func (s *suite) try(ctx context.Context, c Case) (r CaseResult, undecided string) {
	r, t := CaseResult{Case: c, Outcome: Pass}, newTrial(ctx)
	passed, undecided, log := t.run(cmp.Or(c.Limit, time.Minute), func() {
		h := s.mk(t)
		h.props = s.props
		t.watch(h)
		if o, reason := h.lacks(c.Needs); reason != "" {
			r.Outcome, r.Reason = o, reason
			return
		}
		c.Run(t, h)
	})
	if r.Log = log; !passed {
		r.Outcome, r.Reason = Fail, ""
	}
	return r, undecided
}

// Run runs every case as a subtest of t, each with its own harness. If names are given, Run runs
// just the cases with these names, and fails the test if a name belongs to no case. Run calls mk in
// goroutines other than t's, so mk must report errors through its argument.
func Run(t *testing.T, mk func(T) *Harness, only ...string) {
	cases := slices.DeleteFunc(Cases(), func(c Case) bool { return len(only) > 0 && !slices.Contains(only, c.Name) })
	if len(only) > 0 && len(cases) != len(only) {
		t.Fatalf("%d of %d names are those of cases: %q", len(cases), len(only), only)
	}
	s, err := newSuite(t.Context(), mk)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context() // ctx of the parent test, which ends after the subtests
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			// The case starts before t.Parallel, which blocks while many tests run. So the
			// number of cases that wait at the same time can exceed the number of CPUs.
			result := make(chan CaseResult, 1)
			go func() { result <- s.run(ctx, c) }()
			t.Parallel()
			tell(t, <-result)
		})
	}
}

func tell(t *testing.T, r CaseResult) {
	t.Helper()
	switch r.Outcome {
	case Pass:
		if r.Log != "" {
			t.Log("\n" + r.Log)
		}
	case Fail:
		t.Error("\n" + r.Log)
	case NA:
		t.Skip("n/a: " + r.Reason)
	case NotRun:
		if Required() {
			t.Fatal("not run, and the environment requires it: " + r.Reason)
		}
		t.Skip("not run: " + r.Reason)
	}
}

// Required reports whether a case that is not run must fail the test. That is so if CI is "true" or
// LOCKBENCH_REQUIRE is set in the environment.
func Required() bool {
	return os.Getenv("LOCKBENCH_REQUIRE") != "" || os.Getenv("CI") == "true"
}

// Conform runs every case with a harness that mk makes. It calls report once for each rule, in the
// order of [Rules], as soon as the results of that rule and of all earlier rules are known. The
// error is ctx.Err(), or the reason why the suite could not run.
func Conform(ctx context.Context, mk func(T) *Harness, report func(RuleResult)) error {
	s, err := newSuite(ctx, mk)
	if err != nil {
		return err
	}
	cases := Cases()
	results := make([]chan CaseResult, len(cases))
	for i, c := range cases {
		results[i] = make(chan CaseResult, 1)
		go func() { results[i] <- s.run(ctx, c) }()
	}
	for _, rule := range Rules() {
		var of []CaseResult
		for i, c := range cases {
			if c.Rule == rule.ID {
				of = append(of, <-results[i])
			}
		}
		if ctx.Err() == nil {
			report(judge(rule, of))
		}
	}
	return ctx.Err()
}
