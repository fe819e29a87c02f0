package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockbench/lockbench/internal/record"
)

// LeaderChange is who held one lock around the end of a holder. Times are
// nanoseconds.
type LeaderChange struct {
	Backend, Mode string
	End           record.End // of the first lease
	Held          int64      // until its holder last acted as one
	Gap           int64      // from then to the next grant; negative if two held the lock
	Token, Next   uint64     // of the two leases
}

// leaderChanges picks of each backend and mode the change with the median
// time until the next grant: an ordinary one. Events that end early have it up
// to the cut.
func leaderChanges(dir string) ([]LeaderChange, error) {
	var all []LeaderChange
	err := record.ScanEvents(dir, func(s record.Section, attempts []record.Attempt) error {
		all = append(all, ends(s, attempts)...)
		return nil
	})
	if err != nil && !errors.Is(err, record.ErrTruncated) {
		return nil, err
	}
	slices.SortFunc(all, func(a, b LeaderChange) int {
		return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Gap, b.Gap))
	})
	type key struct{ backend, mode string }
	var out []LeaderChange
	for _, g := range groups(all, func(c LeaderChange) key { return key{c.Backend, c.Mode} }) {
		list := harshest(g.all)
		out = append(out, list[len(list)/2])
	}
	return out, nil
}

// harshest are the kills among the changes; without any those whose holder
// lost its lease; else all. A run that kills leaders ends by letting the last
// ones go.
func harshest(all []LeaderChange) []LeaderChange {
	for _, end := range []record.End{record.EndKilled, record.EndLost} {
		some := filter(all, func(s LeaderChange) bool { return s.End == end })
		if len(some) > 0 {
			return some
		}
	}
	return all
}

// resignMode is the mode of takeover in which leaders let go in order.
const resignMode = "resign"

// ends finds in one section of takeovers the leases that somebody else got
// next.
func ends(s record.Section, attempts []record.Attempt) []LeaderChange {
	if s.Scenario != takeoverScenario {
		return nil
	}
	granted := filter(attempts, func(a record.Attempt) bool { return a.Outcome == record.Granted })
	slices.SortFunc(granted, func(a, b record.Attempt) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Answered, b.Answered))
	})
	var out []LeaderChange
	for i := range max(1, len(granted)) - 1 {
		before, next := granted[i], granted[i+1]
		harmed := before.End == record.EndKilled || before.End == record.EndLost || s.Mode == resignMode && before.End == record.EndReleased
		if harmed && before.Name == next.Name && before.Client != next.Client {
			out = append(out, LeaderChange{
				Backend: s.Backend, Mode: s.Mode, End: before.End, Held: before.Ended - before.Answered,
				Gap: next.Answered - before.Ended, Token: before.Token, Next: next.Token,
			})
		}
	}
	return out
}

// lane is a change drawn as three bars whose widths are shares of the
// window in percent.
type lane struct {
	Backend         string
	Held, Gap, Next float64
	Said            string
}

// timeline is the lanes of one mode, in one window.
type timeline struct {
	Mode  string
	From  string // the window's ends, as text
	Until string
	Lanes []lane
}

// The window of a timeline shows the longest wait and these shares of it
// before the death and after the next grant.
const (
	shownBefore = 0.3
	shownAfter  = 0.3
)

// timelines draws all changes, one timeline for each mode.
func (r Report) timelines() []timeline {
	var out []timeline
	for _, g := range groups(r.LeaderChanges, func(s LeaderChange) string { return s.Mode }) {
		longest := 1.0
		for _, s := range g.all {
			longest = max(longest, float64(s.Gap))
		}
		whole := longest * (1 + shownBefore + shownAfter)
		t := timeline{Mode: g.key, From: "-" + duration(longest*shownBefore), Until: "+" + duration(longest*(1+shownAfter))}
		for _, s := range g.all {
			gap := 100 * float64(max(s.Gap, 0)) / whole
			held := 100 * shownBefore / (1 + shownBefore + shownAfter)
			t.Lanes = append(t.Lanes, lane{
				Backend: s.Backend, Held: held, Gap: gap, Next: 100 - held - gap,
				Said: s.waited() + "; " + s.tokens(),
			})
		}
		out = append(out, t)
	}
	return out
}

func (s LeaderChange) waited() string {
	if s.Gap < 0 {
		return "two holders for " + duration(float64(-s.Gap))
	}
	return "nobody for " + duration(float64(s.Gap))
}

func (s LeaderChange) tokens() string {
	if s.Token == 0 && s.Next == 0 {
		return "no tokens"
	}
	return fmt.Sprintf("token %d, then %d", s.Token, s.Next)
}

// String says in one line who held the lock and when.
func (s LeaderChange) String() string {
	end := map[record.End]string{record.EndKilled: "killed", record.EndLost: "lost", record.EndReleased: "released"}[s.End]
	return fmt.Sprintf("%s: held for %s, %s; %s; %s", s.Backend, duration(float64(s.Held)), end, s.waited(), s.tokens())
}
