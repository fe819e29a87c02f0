package bench

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/explore"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/scenario"
	"github.com/lockbench/lockbench/internal/store"
)

// Named is something that a flag takes by its name.
type Named struct {
	Name string `json:"name"`
	Does string `json:"does"` // in one line
}

// Scenarios are what a plan measures.
func Scenarios() []Named {
	var out []Named
	for _, s := range scenario.All() {
		out = append(out, Named{s.Name, s.Doc})
	}
	return out
}

// Modes are the ways in which leaders end in scenario takeover.
func Modes() []Named {
	var out []Named
	for _, m := range scenario.Modes() {
		out = append(out, Named{m, scenario.ModeDoc(m)})
	}
	return out
}

// Baselines are libraries to compare with.
func Baselines() []Named {
	var out []Named
	for _, b := range baseline.All() {
		out = append(out, Named{b.Name, b.Doc})
	}
	return out
}

// TableFaults are the faults of the table.
func TableFaults() []Named {
	var out []Named
	for _, f := range fault.All() {
		out = append(out, Named{f.Name, f.Does})
	}
	return out
}

// Actions are what schedules are drawn from.
func Actions() []Named {
	var out []Named
	for _, a := range explore.Actions() {
		out = append(out, Named{a.Name, a.DoesTo("a " + string(a.On))})
	}
	return out
}

// Reproducers are those that lockbench carries.
func Reproducers() []Named {
	kept, _ := explore.Kept() // a test reads them all
	return namedReproducers(kept)
}

func namedReproducers(all []explore.Reproducer) []Named {
	var out []Named
	for _, r := range all {
		out = append(out, Named{r.Name, r.Finding})
	}
	return out
}

// Names lists what the flags of "lockbench run" take.
func Names() *Outcome {
	return listing(list{"scenarios", Scenarios()}, list{"modes of takeover", Modes()}, list{"baselines", Baselines()})
}

// list names the faults, actions and reproducers that the plan chooses, and that
// its backends know.
func (p FaultsPlan) list() (*Outcome, error) {
	var faults, actions []Named
	for _, f := range p.faults() {
		if p.concerns(func(b string) bool { return store.Of(b).Concerns(f) && store.Of(b).Fits(f) == "" }) {
			faults = append(faults, Named{f.Name, f.Does})
		}
	}
	known, _ := explore.Chosen(p.actions()) // these are all known
	for _, a := range known {
		if p.concerns(a.KnownFor) {
			actions = append(actions, Named{a.Name, a.DoesTo("a " + string(a.On))})
		}
	}
	p.Replay = []string{"all"}
	reproducers, _ := p.reproducers() // that there is none is no error here
	return listing(list{"faults of the table", faults}, list{"actions of a search", actions}, list{"reproducers to replay", namedReproducers(reproducers)}), nil
}

// concerns reports whether something is known for a backend of the plan.
func (p FaultsPlan) concerns(known func(backend string) bool) bool {
	return len(p.Backends) == 0 || slices.ContainsFunc(p.Backends, known)
}

// list is of names that belong together.
type list struct {
	Title string  `json:"title"`
	Names []Named `json:"names"`
}

// listing shows lists of names, a line each.
func listing(lists ...list) *Outcome {
	var b strings.Builder
	for _, l := range lists {
		fmt.Fprintf(&b, "%s:\n", l.Title)
		for _, n := range l.Names {
			fmt.Fprintf(&b, "  %-31s %s\n", n.Name, n.Does)
		}
	}
	return &Outcome{data: lists, text: func(w io.Writer) error { _, err := io.WriteString(w, b.String()); return err }}
}

// freshFolder is a result folder that is named after this second, or with a number
// when another run has that.
func freshFolder() string {
	dir := filepath.Join("results", time.Now().UTC().Format("20060102T150405Z"))
	fresh := dir
	for n := 2; record.Vacant(fresh) != nil && n < 100; n++ {
		fresh = fmt.Sprintf("%s-%d", dir, n)
	}
	return fresh
}
