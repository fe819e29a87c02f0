package faults

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Reproducer is a small schedule that has broken a claim. It is stored as a JSON file.
type Reproducer struct {
	// Name is the name of the reproducer's file, without the extension.
	Name string `json:"-"`
	// Finding names the bug that the reproducer shows. Fixed says which version fixed the bug, or why
	// none did. If Fixed names a version, Shown and Runs were counted on a build without the fix.
	Finding string `json:"finding,omitempty"`
	Fixed   string `json:"fixed,omitempty"`
	// Long is set if playing the reproducer takes more than a few seconds.
	Long bool `json:"long,omitempty"`
	// Strict makes violations count even if documented exceptions excuse them. It is set if such an
	// exception would also hide the bug that the reproducer shows.
	Strict   bool       `json:"strict,omitempty"`
	Rule     claim.Rule `json:"rule"`
	What     string     `json:"what"` // the violation in the last run that broke the rule
	Shown    int        `json:"shown"`
	Runs     int        `json:"runs"`
	Schedule Schedule   `json:"schedule"`
}

// explains reports whether the violation v in the schedule other seems to have the cause that this
// reproducer shows. The violation must break the same rule. In addition, the other schedule must
// have all actions of the reproducer, or the texts of the two violations must be alike.
func (s Reproducer) explains(other Schedule, v check.Violation) bool {
	return s.Rule == v.Rule && (s.Schedule.isIn(other) || kindOf(s.What) == kindOf(v.What))
}

func (s Schedule) isIn(other Schedule) bool {
	for _, e := range s.Events {
		if !slices.ContainsFunc(other.Events, func(o Event) bool { return o.Action == e.Action }) {
			return false
		}
	}
	wrapped := func(h HostPlan) bool { return h.Wrapper != "" }
	return !slices.ContainsFunc(s.Hosts, wrapped) || slices.ContainsFunc(other.Hosts, wrapped)
}

// particulars matches the numbers, quoted names and hosts in the text of a violation.
var particulars = regexp.MustCompile(`[0-9][0-9.:a-zµ]*|"[^"]*"|host [A-Z]`)

// kindOf removes the particulars from the text of a violation, so that texts can be compared.
func kindOf(what string) string { return particulars.ReplaceAllString(what, "") }

func (s Reproducer) Text() string {
	var b strings.Builder
	if s.Finding != "" {
		fmt.Fprintf(&b, "%s: %s (fixed in %s).\n", s.Schedule.on(), s.Finding, s.Fixed)
	}
	fmt.Fprintf(&b, "%s breaks %q in %d of %d runs:\n", s.Schedule.on(), s.Rule, s.Shown, s.Runs)
	for i, g := range s.Schedule.Groups {
		var callers []int
		for _, h := range s.Schedule.Hosts {
			callers = append(callers, h.Callers[i])
		}
		fmt.Fprintf(&b, "  Callers of each host %v: %s, names %d, TTL %v, they ask for up to %v and hold for up to %v.\n",
			callers, g.Kind, g.Names, time.Duration(g.TTL), time.Duration(g.Limit[1]), time.Duration(g.Hold[1]))
		if g.AtLeast > 0 || g.Value > 0 {
			fmt.Fprintf(&b, "  Their locks stay taken for %v at least; what they publish has %d bytes.\n", time.Duration(g.AtLeast), g.Value)
		}
	}
	for i, h := range s.Schedule.Hosts {
		if h.Wrapper != "" {
			fmt.Fprintf(&b, "  The plugin of %s is started by %s.\n", hostName(i), h.Wrapper)
		}
	}
	for _, e := range s.Schedule.Events {
		fmt.Fprintf(&b, "  %s\n", e.text())
	}
	fmt.Fprintf(&b, "  Then: %s.\n", s.What)
	return b.String()
}

func (s Schedule) on() string {
	if len(kinds.Of(s.Backend).Settings) > 1 {
		return s.Backend + " (" + s.Setting + ")"
	}
	return s.Backend
}

func (e Event) text() string {
	a, whom := e.action(), hostName(e.Target)
	if a.On == OnServer {
		whom = fmt.Sprint("server ", e.Target+1)
	}
	does, when := a.DoesTo(whom), fmt.Sprintf("After %v", time.Duration(e.At))
	if e.Trigger != "" {
		when += fmt.Sprintf(", at %q of %s", e.Trigger, hostName(e.Of))
	}
	if e.Lasts > 0 {
		does += fmt.Sprintf(", for %v", time.Duration(e.Lasts))
	}
	return when + ": " + does + "."
}

func (s Reproducer) WriteFile(path string) error {
	b, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// ReadReproducer reads the reproducer file at path, and checks that its schedule can be played.
func ReadReproducer(path string) (Reproducer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Reproducer{}, err
	}
	return parse(path, b)
}

func parse(path string, text []byte) (s Reproducer, err error) {
	s.Name = strings.TrimSuffix(filepath.Base(path), ".json")
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return s, fmt.Errorf("reproducer %s: %w", path, err)
	}
	if err := s.Schedule.check(); err != nil {
		return s, fmt.Errorf("reproducer %s: %w", path, err)
	}
	return s, nil
}

//go:embed reproducers/*.json
var kept embed.FS

// Kept returns this repository's reproducers, sorted by name. Nearly all show bugs that are fixed.
func Kept() (all []Reproducer, err error) {
	files, err := fs.Glob(kept, "reproducers/*.json")
	for _, file := range files {
		text, readErr := kept.ReadFile(file)
		s, parseErr := parse(file, text)
		all, err = append(all, s), errors.Join(err, readErr, parseErr)
	}
	return all, err
}

// Played is the result of playing a reproducer.
type Played struct {
	Runs       int               `json:"runs"`
	Shown      int               `json:"shown"`
	Grants     int               `json:"grants"`
	Violations []check.Violation `json:"violations"` // the violations in all runs
	Unjudged   int               `json:"unjudged"`   // runs in which a claim with a time limit seemed broken, but the machine was too busy
}

// Replayer plays reproducers of one backend. It keeps healthy servers for the next reproducer if
// that reproducer needs the same setting of the store.
type Replayer struct{ *players }

// NewReplayer makes a Replayer for the backend b. The caller must close the Replayer.
func NewReplayer(b Backend) (*Replayer, error) {
	one, err := newPlayers(b, 1)
	return &Replayer{one}, err
}

func (r *Replayer) Close() error { return r.close() }

// Play plays the reproducer s as often as the parameter runs says. It stops at the first error.
func (r *Replayer) Play(ctx context.Context, s Reproducer, runs int) (p Played, err error) {
	for range runs {
		h, err := r.play(ctx, s.Schedule)
		if err != nil {
			return p, err
		}
		v := h.judge(r.backend)
		if s.Strict {
			v.Violations = append(v.Violations, v.Exempt...)
		}
		p.Runs++
		p.Grants += v.Grants
		if len(v.Violations) > 0 {
			p.Shown++
		}
		if v.Unjudged {
			p.Unjudged++
		}
		p.Violations = append(p.Violations, v.Violations...)
		for _, m := range h.Marks {
			if m.Failed != "" {
				return p, fmt.Errorf("faults: %s: %s", m.Action, m.Failed)
			}
		}
	}
	return p, nil
}
