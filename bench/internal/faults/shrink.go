package faults

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
)

// shrinker makes a schedule small that has broken a claim. No schedule is played
// the same way twice: a smaller one is taken if it breaks the same rule in two
// of three plays, and one with fewer actions if it does in two of six. Actions are
// what a person reads first, and without those that were there by chance a schedule
// breaks its rule less often.
type shrinker struct {
	*searcher
	rule claim.Rule // that is broken

	mu    sync.Mutex
	what  string // in the play that showed it last
	plays int
}

// chances is how often a schedule is played again to see whether it shows the
// violation at all, and what is left of it without an action.
const chances = 6

// shrink makes a reproducer of the violation of s: the smallest schedule that was
// found to show it, until nothing can go or the time is over. A violation that was
// seen by chance cannot be made smaller.
func (x *searcher) shrink(ctx context.Context, s Schedule, v check.Violation) Reproducer {
	k := &shrinker{searcher: x, rule: v.Rule, what: v.What}
	most := k.opts.Shrink
	if !k.opts.KeepGoing { // what is left of the time
		most = min(most, max(time.Until(k.until), most/4))
	}
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if one, shown := k.anyOf(bounded, s.alone(), 2, chances); shown {
		s = one
	} else if shown, _ := k.shows(bounded, s, 1, chances); shown == 0 {
		x.log("%s: it did not show again in %d plays", x.backend.Name, k.plays)
		return Reproducer{Schedule: s, Rule: k.rule, What: k.what, Runs: chances}
	}
	for smaller := true; smaller && bounded.Err() == nil; {
		s, smaller = k.smaller(bounded, s)
	}
	reproducer := k.reproducerOf(ctx, s)
	k.mu.Lock()
	defer k.mu.Unlock()
	x.log("%s: shrunk in %d plays to %d actions on %d hosts", x.backend.Name, k.plays, len(reproducer.Schedule.Events), len(reproducer.Schedule.Hosts))
	return reproducer
}

// smaller tries once each to leave out something of s.
func (k *shrinker) smaller(ctx context.Context, s Schedule) (_ Schedule, some bool) {
	for less, shown := k.anyOf(ctx, s.withoutOne(), 2, chances); shown; less, shown = k.anyOf(ctx, s.withoutOne(), 2, chances) {
		s, some = less, true
	}
	for i := 0; ctx.Err() == nil; {
		candidates := smallerThan(s)
		if i >= len(candidates) {
			break
		}
		if shown, _ := k.shows(ctx, candidates[i], 2, 3); shown == 2 {
			s, some = candidates[i], true // what comes after it has its number now
		} else {
			i++
		}
	}
	return s, some
}

// anyOf plays all of candidates at once, and returns the first that shows.
func (k *shrinker) anyOf(ctx context.Context, candidates []Schedule, need, times int) (one Schedule, shown bool) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	numbers := make(chan int, len(candidates)) // -1: it does not
	for i, c := range candidates {
		go func() {
			if shown, _ := k.shows(ctx, c, need, times); shown < need {
				i = -1
			}
			numbers <- i
		}()
	}
	for range candidates {
		if i := <-numbers; i >= 0 {
			return candidates[i], true
		}
	}
	return one, false
}

// reproducerOf plays s as often as a reproducer is.
func (k *shrinker) reproducerOf(ctx context.Context, s Schedule) Reproducer {
	shown, plays := k.shows(ctx, s, k.opts.Runs, k.opts.Runs)
	k.mu.Lock()
	defer k.mu.Unlock()
	return Reproducer{Schedule: s, Rule: k.rule, What: k.what, Shown: shown, Runs: plays}
}

// shows plays s up to times times, on all players that are idle, and counts how
// often it breaks the same rule, up to need, in how many plays. It ends as soon
// as that is reached or cannot be.
func (k *shrinker) shows(ctx context.Context, s Schedule, need, times int) (shown, plays int) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	played := make(chan bool, times)
	for range times {
		go func() { played <- k.breaks(ctx, s) }()
	}
	for left := times; left > 0; left-- {
		broken := <-played
		if ctx.Err() != nil {
			continue // the players are needed for what comes next
		}
		plays++
		if broken {
			shown++
		}
		if need < times && (shown == need || shown+left-1 < need) {
			enough()
		}
	}
	return shown, plays
}

// breaks plays s, and reports whether the same rule is broken.
func (k *shrinker) breaks(ctx context.Context, s Schedule) bool {
	h, err := k.play(ctx, s)
	if err != nil {
		return false
	}
	violations := judgeOf(h, k.backend).Violations
	i := slices.IndexFunc(violations, func(v check.Violation) bool { return v.Rule == k.rule })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plays++
	if i < 0 {
		return false
	}
	k.what = violations[i].What
	return true
}
