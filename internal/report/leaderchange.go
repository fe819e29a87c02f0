package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockbench/lockbench/internal/record"
)

// LeaderChange is who held one lock around the end of a holder. Times are
// nanoseconds after it last acted as one.
type LeaderChange struct {
	Backend, Mode string
	Run           int
	End           record.End // of Before
	// Before and Next are the two leases: Before.From is negative, and Next.From
	// is how long nobody held the lock; it is negative if two did.
	Before, Next Span
}

// Span is a lease as its holder has seen it.
type Span struct {
	From, Until int64 // Until of a lease whose end was not seen is From
	Token       uint64
}

type changeKey struct{ backend, mode string }

// leaderChanges picks of each backend and mode the change with the median
// time until the next grant: an ordinary one. Events that end early have it up
// to the cut.
func leaderChanges(dir string) ([]LeaderChange, error) {
	f, err := os.Open(filepath.Join(dir, record.EventsFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[changeKey][]LeaderChange{}
	err = record.ReadEvents(f, func(s record.Section, attempts []record.Attempt) error {
		key := changeKey{s.Backend, s.Mode}
		all[key] = append(all[key], ends(s, attempts)...)
		return nil
	})
	if err != nil && !errors.Is(err, record.ErrTruncated) {
		return nil, err
	}
	var out []LeaderChange
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b changeKey) int {
		return cmp.Or(cmp.Compare(a.mode, b.mode), cmp.Compare(a.backend, b.backend))
	}) {
		if list := harshest(all[key]); len(list) > 0 {
			slices.SortFunc(list, func(a, b LeaderChange) int { return cmp.Compare(a.Next.From, b.Next.From) })
			out = append(out, list[len(list)/2])
		}
	}
	return out, nil
}

// harshest are the kills among the changes; without any those whose holder
// lost its lease; else all. A run that kills leaders ends by letting the last
// ones go.
func harshest(all []LeaderChange) []LeaderChange {
	for _, end := range []record.End{record.EndKilled, record.EndLost} {
		some := slices.DeleteFunc(slices.Clone(all), func(s LeaderChange) bool { return s.End != end })
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
	byName := map[int32][]record.Attempt{}
	for _, a := range attempts {
		if a.Outcome == record.Granted {
			byName[a.Name] = append(byName[a.Name], a)
		}
	}
	var out []LeaderChange
	for _, grants := range byName {
		slices.SortFunc(grants, func(a, b record.Attempt) int { return cmp.Compare(a.Answered, b.Answered) })
		for i := 0; i+1 < len(grants); i++ {
			before, next := grants[i], grants[i+1]
			harmed := before.End == record.EndKilled || before.End == record.EndLost || s.Mode == resignMode && before.End == record.EndReleased
			if harmed && before.Client != next.Client {
				out = append(out, LeaderChange{
					Backend: s.Backend, Mode: s.Mode, Run: s.Run, End: before.End,
					Before: span(before, before.Ended), Next: span(next, before.Ended),
				})
			}
		}
	}
	return out
}

func span(a record.Attempt, zero int64) Span {
	s := Span{From: a.Answered - zero, Until: a.Answered - zero, Token: a.Token}
	if a.End != record.EndOpen {
		s.Until = a.Ended - zero
	}
	return s
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
	longest := map[string]int64{}
	var modes []string
	for _, s := range r.LeaderChanges {
		if _, ok := longest[s.Mode]; !ok {
			modes = append(modes, s.Mode)
		}
		longest[s.Mode] = max(longest[s.Mode], s.Next.From, 1)
	}
	var out []timeline
	for _, mode := range modes {
		whole := float64(longest[mode]) * (1 + shownBefore + shownAfter)
		t := timeline{
			Mode: mode, From: "-" + duration(float64(longest[mode])*shownBefore),
			Until: "+" + duration(float64(longest[mode])*(1+shownAfter)),
		}
		for _, s := range r.LeaderChanges {
			if s.Mode != mode {
				continue
			}
			gap := 100 * float64(max(s.Next.From, 0)) / whole
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
	if s.Next.From < 0 {
		return "two holders for " + duration(float64(-s.Next.From))
	}
	return "nobody for " + duration(float64(s.Next.From))
}

func (s LeaderChange) tokens() string {
	if s.Before.Token == 0 && s.Next.Token == 0 {
		return "no tokens"
	}
	return fmt.Sprintf("token %d, then %d", s.Before.Token, s.Next.Token)
}

// String says in one line who held the lock and when.
func (s LeaderChange) String() string {
	end := map[record.End]string{record.EndKilled: "killed", record.EndLost: "lost", record.EndReleased: "released"}[s.End]
	return fmt.Sprintf("%s: held for %s, %s; %s; %s",
		s.Backend, duration(float64(s.Before.Until-s.Before.From)), end, s.waited(), s.tokens())
}
