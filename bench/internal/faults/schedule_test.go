package faults

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func TestScheduleFollowsSeed(t *testing.T) {
	draw := func(backend string, seed uint64) (all []Schedule) {
		g := newGenerator(backend, seed, nil, Actions())
		for range 50 {
			all = append(all, g.next())
		}
		return all
	}
	for _, backend := range kinds.Names() {
		one := draw(backend, 7)
		if !reflect.DeepEqual(one, draw(backend, 7)) {
			t.Errorf("%s: one seed, two lists of schedules", backend)
		}
		if reflect.DeepEqual(one, draw(backend, 8)) {
			t.Errorf("%s: two seeds, one list of schedules", backend)
		}
		for i, s := range one {
			if err := s.check(); err != nil {
				t.Errorf("%s: schedule %d: %v", backend, i, err)
			}
			callers := 0
			for _, h := range s.Hosts {
				for _, c := range h.Callers {
					callers += c
				}
			}
			if callers == 0 {
				t.Errorf("%s: schedule %d has no callers", backend, i)
			}
		}
	}
}

func TestEventsDoNotShare(t *testing.T) {
	g := newGenerator("redis", 3, nil, Actions())
	for range 300 {
		s := g.next()
		for i, a := range s.Events {
			for _, b := range s.Events[i+1:] {
				x, y := a.action(), b.action()
				same := x.Uses != "" && x.Uses == y.Uses && (x.Uses == UsesStore || x.On == y.On && a.Target == b.Target)
				if same && b.At < a.At+a.Lasts && a.At < b.At+b.Lasts {
					t.Fatalf("%+v and %+v at the same time", a, b)
				}
			}
		}
	}
}

// TestDeckDealsEverythingSoon checks that the schedules of a search of half an hour contain every
// action, and at least four fifths of all pairs of actions.
func TestDeckDealsEverythingSoon(t *testing.T) {
	const halfAnHour = 30 * time.Minute / (6500 * time.Millisecond)
	for _, backend := range kinds.Names() {
		g := newGenerator(backend, 1, nil, Actions())
		c := newCoverage(g.picker)
		for range int(halfAnHour) {
			h := &History{Schedule: g.next()}
			for _, e := range h.Schedule.Events {
				h.Marks = append(h.Marks, Mark{Event: e, From: 1})
			}
			c.add(h)
		}
		all := map[pair]bool{}
		for _, actions := range g.picker.fitting {
			for i, a := range actions {
				for _, b := range actions[i+1:] {
					all[pairOf(a.Name, b.Name)] = g.picker.picked[pairOf(a.Name, b.Name)]
				}
			}
		}
		picked := 0
		for _, is := range all {
			if is {
				picked++
			}
		}
		if c.Actions < c.AllActions || float64(picked) < 0.8*float64(len(all)) {
			t.Errorf("%s: %s, %d of %d pairs", backend, c.Line(), picked, len(all))
		}
	}
}

// TestSmallerSchedulesCanBePlayed removes parts of schedules. It checks that each smaller schedule
// is valid, and that repeated removal comes to an end.
func TestSmallerSchedulesCanBePlayed(t *testing.T) {
	g := newGenerator("etcd", 5, nil, Actions())
	for range 100 {
		s := g.next()
		steps := 0
		less := func() []Schedule { return slices.Concat(s.withoutOne(), smallerThan(s)) }
		for smaller := less(); len(smaller) > 0; smaller = less() {
			for _, c := range slices.Concat(s.alone(), smaller) {
				if err := c.check(); err != nil {
					t.Fatalf("%v of %+v", err, c)
				}
			}
			s = smaller[len(smaller)-1]
			if steps++; steps > 1000 {
				t.Fatal("it never ends")
			}
		}
		if len(s.Events) != 0 || len(s.Hosts) != 1 || len(s.Groups) != 1 {
			t.Errorf("%+v is the smallest", s)
		}
	}
}

func TestReproducerFile(t *testing.T) {
	g := newGenerator("mysql", 9, nil, Actions())
	for range 20 {
		reproducer := Reproducer{Rule: "overlap", What: "something", Shown: 3, Runs: 10, Schedule: g.next()}
		path := t.TempDir() + "/reproducer.json"
		if err := reproducer.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		again, err := ReadReproducer(path)
		if err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(reproducer)
		two, _ := json.Marshal(again)
		if !slices.Equal(one, two) {
			t.Fatalf("%s\nis read as\n%s", one, two)
		}
		if reproducer.Text() == "" {
			t.Error("a reproducer without a text")
		}
		reproducer.Schedule.Events = append(reproducer.Schedule.Events, Event{Action: "no-such"})
		if err := reproducer.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReproducer(path); err == nil {
			t.Error("an action that there is not was accepted")
		}
	}
}

// TestReproducerExplains checks that a reproducer explains a violation of its rule if the schedule
// has its actions or the texts are alike. It must explain no other violation.
func TestReproducerExplains(t *testing.T) {
	of := func(actions ...string) (s Schedule) {
		for _, a := range actions {
			s.Events = append(s.Events, Event{Action: a})
		}
		s.Hosts = []HostPlan{{}}
		return s
	}
	const what = `release of lock 3 on host A gave up 3.998s before its context ended: release "x-1-3" on redis: cannot connect to 127.0.0.1:23025`
	reproducer := Reproducer{Rule: "gave up", What: what, Schedule: of("refuse")}
	wrapped := reproducer
	wrapped.Schedule.Hosts = []HostPlan{{Wrapper: "shell"}}
	for _, c := range []struct {
		reproducer Reproducer
		in         Schedule
		rule       string
		what       string
		want       bool
	}{
		{reproducer, of("cut", "refuse"), "gave up", "something else", true},
		{reproducer, of("cut"), "gave up", `release of lock 12 on host C gave up 1.2s before its context ended: release "y" on redis: cannot connect to 127.0.0.1:99`, true},
		{reproducer, of("cut"), "gave up", "lead of lock 3 on host A gave up 3s before its context ended: read-only", false},
		{reproducer, of("cut", "refuse"), "overlap", what, false},
		{wrapped, of("refuse"), "gave up", "something else", false},
	} {
		if got := c.reproducer.explains(c.in, check.Violation{Rule: claim.Rule(c.rule), What: c.what}); got != c.want {
			t.Errorf("%q with %v: explained %v, want %v", c.what, c.in.Events, got, c.want)
		}
	}
}
