package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

// lateDone believes in a lease for a second after its end.
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

// lateDeadline counts from the reply.
type lateDeadline struct{ held }

func (l lateDeadline) Deadline() time.Time { return l.held.Deadline().Add(200 * time.Millisecond) }

// noCause does not say why a lease has ended.
type noCause struct{ held }

func (l noCause) Err() error {
	if l.held.Err() == nil {
		return nil
	}
	return errors.New("the lease is over")
}

func coreBugs() []bug {
	return []bug{
		{
			name:  "done after deadline",
			hooks: hooks{lease: newLateDone},
			caught: []string{
				"L3 done at the deadline when the store is silent", "L3 done at the deadline when the store is frozen",
				"L3 a released lease is over at once", "L3 a frozen host finds its lease over when it resumes", "L2 no other owner gets the lock before its holder's deadline",
			},
		},
		{
			name:          "done after deadline, with a plugin that hangs",
			hooks:         hooks{lease: newLateDone},
			neverReplaced: true,
			caught:        []string{"L3 done before deadline when the plugin hangs", "L8 a release outlasts a plugin that hangs"},
		},
		{
			name:   "deadline counted from the reply",
			hooks:  hooks{lease: func(l held) held { return lateDeadline{l} }},
			caught: []string{"L2 the deadline counts from before the request was sent"},
		},
		{
			name:  "cause is lost",
			hooks: hooks{lease: func(l held) held { return noCause{l} }},
			caught: []string{
				"L3 a lease that another took says so",
				"L3 done at the deadline when the store is silent", "L3 a broken lease is lost at the next renewal",
				"L3 a broken lease is lost after a hand-over too",
			},
		},
		{
			name:  "error identity lost",
			hooks: hooks{err: func(err error) error { return errors.New(err.Error()) }},
			caught: []string{
				"K1 acquire ends with its ctx", "K2 try decides once and says who holds",
				"K3 what cannot be settled is indeterminate, with a time that holds",
			},
		},
		{
			name: "bad input is accepted",
			hooks: hooks{err: func(err error) error {
				if errors.Is(err, driver.ErrInvalid) {
					return nil
				}
				return err
			}},
			caught: []string{"K7 a TTL outside the bounds is refused before anything is sent"},
		},
		{
			name:   "grants out of order",
			hooks:  hooks{lease: outOfOrder()},
			caught: []string{"K5 goroutines of one host are served in their order"},
		},
		{
			name:   "a hand-over keeps the token",
			hooks:  hooks{lease: func(l held) held { return sameToken{l} }},
			caught: []string{"L6 tokens rise over hand-overs inside a host"},
		},
	}
}

// sameToken is the grant's, whatever hand-over it is.
type sameToken struct{ held }

func (l sameToken) Token() uint64 { return core.GrantNumber(l.held.Token()) << 10 }

// outOfOrder tells of later grants sooner, and gives up the lock meanwhile.
func outOfOrder() func(held) held {
	var grants atomic.Int32
	return func(l held) held {
		if n := grants.Add(1); n > 1 {
			_ = l.Release(context.Background())
			time.Sleep(time.Duration(20-n) * 20 * time.Millisecond)
		}
		return l
	}
}

func processBugs() []bug {
	return []bug{
		{name: "the plugin's death frees its locks", pluginTakesLocks: true, caught: []string{"L8 a lease outlives its plugin", "L8 a lease that was handed over outlives its plugin"}},
		{
			name:           "nobody is told that the plugin died",
			diesWithPlugin: true,
			silentDeath:    true,
			caught:         []string{"L8 a lease whose store died with the plugin is lost within a second"},
		},
		{name: "close waits for a plugin that hangs", slowClose: true, neverReplaced: true, caught: []string{"K8 close returns within 3 s while the plugin hangs"}},
		{name: "the plugin renews for a frozen host", pluginRenews: true, caught: []string{"L5 a frozen host loses its lock to another", "L5 a host that is frozen in a streak loses its lock to another"}},
		{
			name:     "a dead host's locks are left to expire",
			abandons: true,
			caught: []string{
				"L7 the lock of a killed host is free at once", "L7 the lock of a host that is killed in a streak is free at once",
				"L7 a killed host leaves the queue", "L7 a killed host's AtLeast is kept",
			},
		},
		{name: "a dead host's plugin does not renew", forgetsDelay: true, caught: []string{"L7 a killed host's lock is kept for the delay"}},
	}
}
