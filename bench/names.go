package bench

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/baseline"
	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/measure"
	"github.com/lockbench/lockbench/bench/internal/report"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Named is a word that a flag accepts, with a text about it.
type Named struct {
	Name string `json:"name"`
	Does string `json:"does"` // in one line
}

// Choices returns the words that the flag accepts, or nil if the flag has no fixed list of words.
func Choices(flag string) []Named {
	switch flag {
	case "scenarios":
		return named(measure.All(), func(s measure.Scenario) Named { return Named{s.Name, s.Doc} })
	case "modes":
		return named(measure.Modes(), func(mode string) Named { return Named{mode, measure.ModeDoc(mode)} })
	case "baselines":
		return named(baseline.All(), func(b baseline.Baseline) Named { return Named{b.Name, b.Doc} })
	case "faults":
		return named(faults.All(), nameOfFault)
	case "actions":
		return named(faults.Actions(), nameOfAction)
	case "replay":
		kept, _ := faults.Kept() // cannot fail, because a test has read all reproducers
		return named(kept, nameOfReproducer)
	}
	return nil
}

func words(flag string) (names []string) {
	for _, n := range Choices(flag) {
		names = append(names, n.Name)
	}
	return names
}

func checkNames(flag, what string, names []string) error {
	known := words(flag)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return unknown(what, name, known)
		}
	}
	return nil
}

// ScenarioHelp says what each scenario measures.
func ScenarioHelp() string {
	var b strings.Builder
	for _, s := range Choices("scenarios") {
		does, _, _ := strings.Cut(s.Does, ":")
		does, _, _ = strings.Cut(does, ";")
		fmt.Fprintf(&b, "  %-12s%s\n", s.Name, report.Wrap(does, 66, strings.Repeat(" ", 14)))
	}
	return strings.TrimRight(b.String(), "\n")
}

func nameOfFault(f faults.Fault) Named   { return Named{f.Name, f.Does} }
func nameOfAction(a faults.Action) Named { return Named{a.Name, a.DoesTo("a " + string(a.On))} }

func nameOfReproducer(r faults.Reproducer) Named { return Named{r.Name, r.Finding} }

func named[T any](all []T, name func(T) Named) []Named {
	var out []Named
	for _, one := range all {
		out = append(out, name(one))
	}
	return out
}

// Names lists the words that the flags of "lockbench run" accept.
func Names() *Outcome {
	return listing(list{"scenarios", Choices("scenarios")}, list{"modes of takeover", Choices("modes")}, list{"baselines", Choices("baselines")})
}

// list shows the faults, actions and reproducers (recorded failures) that fit the plan.
func (p FaultsPlan) list() (*Outcome, error) {
	concerns := func(known func(backend string) bool) bool {
		return len(p.Backends) == 0 || slices.ContainsFunc(p.Backends, known)
	}
	chosen := slices.DeleteFunc(p.faults(), func(f faults.Fault) bool {
		return !concerns(func(b string) bool { return f.Fits(kinds.Of(b)) == "" })
	})
	actions := faults.Chosen(p.actions())
	actions = slices.DeleteFunc(actions, func(a faults.Action) bool { return !concerns(a.KnownFor) })
	p.Replay = []string{"all"}
	reproducers, _ := p.reproducers() // an empty list is no error here
	return listing(
		list{"faults of the table", named(chosen, nameOfFault)},
		list{"actions of a search", named(actions, nameOfAction)},
		list{"reproducers to replay", named(reproducers, nameOfReproducer)},
	), nil
}

type list struct {
	Title string  `json:"title"`
	Names []Named `json:"names"`
}

func listing(lists ...list) *Outcome {
	var b strings.Builder
	for _, l := range lists {
		fmt.Fprintf(&b, "%s:\n", l.Title)
		for _, n := range l.Names {
			fmt.Fprintf(&b, "  %-31s %s\n", n.Name, n.Does)
		}
	}
	return &Outcome{data: lists, text: b.String()}
}

// chooseFolder checks that the folder *out is empty or missing. If *out is "", it becomes a name
// with the current time, and with a number if that name exists.
func chooseFolder(out *string) error {
	if *out != "" {
		return results.Vacant(*out)
	}
	dir := filepath.Join("results", time.Now().UTC().Format("20060102T150405Z"))
	*out = dir
	for n := 2; results.Vacant(*out) != nil && n < 100; n++ {
		*out = fmt.Sprintf("%s-%d", dir, n)
	}
	return nil
}
