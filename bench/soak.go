package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/safety"
)

// How many leases a soak keeps on each backend.
const (
	soakPool      = 2_000
	quickSoakPool = 200
)

// soak plays the faults of the table over and over in one environment for each
// backend, all at the same time, and writes the rounds that were not held to the
// plan's folder.
func (p FaultsPlan) soak(ctx context.Context, opts Options) (*Outcome, error) {
	faults := p.faults()
	if len(faults) == 0 {
		return nil, p.nothingChosen("fault")
	}
	backends, m, err := p.judged(ctx, true)
	if err != nil {
		return nil, orInterrupted(ctx, err)
	}
	tell := &lines{w: opts.Lines, all: opts.Verbose}
	tell.say("soaking with --seed %d for %v; rounds that are not held come into %s", p.Seed, p.Length, p.Out)
	var telling sync.Mutex
	s := safety.Soak{Backends: backends, Faults: faults, Length: p.Length, Seed: p.Seed, PoolSize: soakPool, Log: func(format string, args ...any) {
		telling.Lock()
		defer telling.Unlock()
		tell.mention(format, args...)
	}}
	if p.Quick {
		s.PoolSize = quickSoakPool
	}
	var all []soaked
	_, err = p.folder(ctx, m, "safety", p.runs(1, 1), func(folder *record.Folder) error {
		for range p.runs(1, 1) {
			found, err := s.Run(ctx)
			for _, one := range found {
				if out := errors.Is(one.Err, env.ErrNotInstalled) || errors.Is(one.Err, safety.ErrUnbearable); out && len(p.Backends) == 0 {
					tell.say("left out: %s: %v", one.Backend, one.Err)
					continue
				}
				all = append(all, soakedOf(one, p.Quick))
				for _, r := range one.Bad {
					err = errors.Join(err, folder.AddRound(r))
				}
			}
			if err != nil {
				return orInterrupted(ctx, err)
			}
		}
		return nil
	})
	if len(all) == 0 {
		return nil, orInterrupted(ctx, err)
	}
	return &Outcome{text: func(w io.Writer) error { return writeSoaked(w, all) }, data: all}, verdictOfSoaked(all, err)
}

// soaked is what a soak has found on one backend.
type soaked struct {
	Backend     string   `json:"backend"`
	Rounds      int      `json:"rounds"`
	Grants      int      `json:"grants"`
	Violations  []string `json:"violations"`   // those who have grown among them
	ShortLosses int      `json:"short_losses"` // leases with a short TTL, lost to faults that they could survive
	Uses        []string `json:"uses"`         // of the processes that faults have not ended, at rest
	Ended       int      `json:"ended"`        // processes that faults have ended
	Failure     string   `json:"failure,omitempty"`
	err         error
}

// soakedOf sums up what was found. In a quick soak the first garbage that a process
// collects is most of its growth, which is not judged then.
func soakedOf(f safety.Soaked, quick bool) soaked {
	s := soaked{Backend: f.Backend, Rounds: f.Rounds, Grants: f.Grants, Violations: f.Violations, ShortLosses: f.ShortLosses, err: f.Err}
	if f.Err != nil {
		s.Failure = f.Err.Error()
	}
	last := map[string]*safety.Usage{}
	for _, u := range f.Usages {
		last[u.Who] = u
	}
	for _, u := range f.Usages {
		if grown := u.Grown(); !quick && grown != "" {
			s.Violations = append(s.Violations, grown)
		}
		if last[u.Who] == u {
			s.Uses = append(s.Uses, fmt.Sprintf("%s: %v, then %v", u.Who, u.First, u.Last))
		}
	}
	s.Ended = len(f.Usages) - len(last)
	return s
}

func writeSoaked(w io.Writer, all []soaked) error {
	var b strings.Builder
	for _, s := range all {
		verdict := "held"
		if n := len(s.Violations); n > 0 {
			verdict = fmt.Sprintf("BROKEN: %d violations", n)
		}
		fmt.Fprintf(&b, "%s: %s\n  %d rounds, %d grants; %d leases with a TTL of %v were lost to faults that they could survive\n",
			s.Backend, verdict, s.Rounds, s.Grants, s.ShortLosses, safety.TTL)
		for _, v := range s.Violations {
			fmt.Fprintf(&b, "  %s\n", v)
		}
		if s.Failure != "" {
			fmt.Fprintf(&b, "  it ended early: %s\n", s.Failure)
		}
		for _, use := range s.Uses {
			fmt.Fprintf(&b, "  %s\n", use)
		}
		fmt.Fprintf(&b, "  and %d processes that faults have ended\n", s.Ended)
	}
	fmt.Fprintf(&b, "use is at rest, after the first round and after the last one; it may grow by %s\n", safety.Allowance())
	_, err := io.WriteString(w, b.String())
	return err
}

// verdictOfSoaked turns what was found into an error. A violation comes first.
func verdictOfSoaked(all []soaked, err error) error {
	violations, grants := 0, 0
	for _, s := range all {
		violations += len(s.Violations)
		grants += s.Grants
		if s.err != nil && !errors.Is(err, ErrInterrupted) {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.Backend, s.err))
		}
	}
	switch {
	case violations > 0:
		return errors.Join(fmt.Errorf("%w: %d in %d grants", ErrUnsafe, violations, grants), err)
	case err == nil && grants == 0:
		return errNothing()
	}
	return err
}
