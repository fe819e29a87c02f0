package drivertest

import (
	"time"

	"github.com/lockbench/lockbench/core"
)

// lateDone is a bug: Done and Valid report the lease's end a second too late.
type lateDone struct {
	held
	done chan struct{}
}

func newLateDone(l held) held {
	late := &lateDone{held: l, done: make(chan struct{})}
	go func() {
		<-l.Done()
		time.Sleep(time.Second)
		close(late.done)
	}()
	return late
}

func (l *lateDone) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *lateDone) Done() <-chan struct{} { return l.done }
func (l *lateDone) Valid() bool           { return !l.over() }

func (l *lateDone) Err() error {
	if l.over() {
		return l.held.Err()
	}
	return nil
}

func (l *lateDone) State() core.State {
	if l.over() {
		return l.held.State()
	}
	return core.Held
}

func coreBugs() []bug {
	return []bug{
		{
			name: "done after deadline",
			hook: newLateDone,
			caught: []string{
				"L3 done at the deadline when the store is frozen", "L5 a frozen host loses its lock to another", "L2 no other owner gets the lock before its holder's deadline",
			},
		},
		{
			name:          "done after deadline, with a plugin that hangs",
			hook:          newLateDone,
			neverReplaced: true,
			caught:        []string{"L3 done before deadline when the plugin hangs"},
		},
	}
}

func processBugs() []bug {
	return []bug{
		{name: "the plugin's death frees its locks", pluginTakesLocks: true, caught: []string{"L8 a lease outlives its plugin"}},
		{
			name:           "nobody is told that the plugin died",
			diesWithPlugin: true,
			silentDeath:    true,
			caught:         []string{"L8 a lease whose store died with the plugin is lost within a second"},
		},
		{name: "the plugin renews for a frozen host", pluginRenews: true, caught: []string{"L5 a frozen host loses its lock to another"}},
		{
			name:     "a dead host's locks are left to expire",
			abandons: true,
			caught: []string{
				"L7 the lock of a killed host is free at once",
				"L7 a killed host leaves the queue", "L7 a killed host's AtLeast is kept",
			},
		},
		{name: "a dead host's plugin does not renew", forgetsDelay: true, caught: []string{"L7 a killed host's lock is kept for the delay"}},
	}
}
