package faults

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
)

// Trigger is a moment in a host's traffic with the servers, or in the life of its plugin, at which
// a schedule can make an action happen.
type Trigger string

// A watcher detects these triggers from the data that pass through a host's proxies, and from the
// host's reports.
const (
	TriggerSent      Trigger = "request sent"      // a request has passed, but its reply has not
	TriggerAnswered  Trigger = "answer under way"  // a reply passes to the host
	TriggerRenewal   Trigger = "renewal under way" // a request passes although no caller of the host is asking for a lock
	TriggerRelease   Trigger = "release under way" // a request passes just after a caller began to release a lock
	TriggerRestarted Trigger = "plugin restarting" // the host's plugin process has ended
)

// TriggerServed comes when each lock of the host's last request was granted or has failed. Searches
// do not draw this trigger, but the table of faults and schedules written by hand use it.
const TriggerServed Trigger = "all locks granted"

func Triggers() []Trigger {
	return []Trigger{TriggerSent, TriggerAnswered, TriggerRenewal, TriggerRelease, TriggerRestarted}
}

// An event waits at most triggerTimeout for its trigger, and then happens without the trigger.
const triggerTimeout = 2 * time.Second

// watcher detects the triggers of the hosts of one schedule.
type watcher struct {
	hosts []*Host
	ends  []func()

	mu      sync.Mutex
	waiting map[*awaited]bool
}

// awaited is a trigger that an event waits for. Proxies hold back data that match the trigger until
// the event has happened.
type awaited struct {
	host     int
	trigger  Trigger
	come     chan struct{}
	happened chan struct{}
}

// A proxy holds data back until the awaited event has happened, but at most for holdsFor.
const holdsFor = 500 * time.Millisecond

// A request counts as a release if a caller began to release a lock less than releaseFollows ago.
const releaseFollows = 20 * time.Millisecond

func watchTriggers(w *System) *watcher {
	watch := &watcher{hosts: w.Hosts, waiting: map[*awaited]bool{}}
	for i, h := range w.Hosts {
		for _, p := range h.Paths {
			watch.ends = append(watch.ends, p.Observe(func(way inject.Direction) { watch.pass(i, way) }))
		}
	}
	return watch
}

func (w *watcher) close() {
	for _, end := range w.ends {
		end()
	}
}

// pass is called for all data between a host and a server, before the proxy passes them on.
func (w *watcher) pass(host int, way inject.Direction) {
	for _, a := range w.match(host, way) {
		close(a.come)
		select {
		case <-a.happened:
		case <-time.After(holdsFor):
		}
	}
}

// match returns the awaited triggers that a host's data cause, and removes them from w.waiting.
func (w *watcher) match(host int, way inject.Direction) []*awaited {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return nil
	}
	asking, released := w.hosts[host].Asking()
	request := way == inject.Requests
	is := map[Trigger]bool{
		TriggerSent:     request,
		TriggerAnswered: !request,
		TriggerRenewal:  request && !asking,
		TriggerRelease:  request && proc.Now()-released < int64(releaseFollows),
	}
	var come []*awaited
	for a := range w.waiting {
		if a.host == host && is[a.trigger] {
			delete(w.waiting, a)
			come = append(come, a)
		}
	}
	return come
}

// await waits for the trigger m, and reports whether m came within triggerTimeout (servedTimeout
// for TriggerServed). The caller must call the function happened after the event.
func (w *watcher) await(ctx context.Context, host int, m Trigger) (met bool, happened func()) {
	if m == TriggerServed {
		return w.served(ctx, host), func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, triggerTimeout)
	defer cancel()
	if m == TriggerRestarted {
		return w.awaitRestart(ctx, host), func() {}
	}
	a := &awaited{host: host, trigger: m, come: make(chan struct{}), happened: make(chan struct{})}
	w.mu.Lock()
	w.waiting[a] = true
	w.mu.Unlock()
	select {
	case <-a.come:
		met = true
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, a)
	return met, func() { close(a.happened) }
}

func (w *watcher) awaitRestart(ctx context.Context, host int) bool {
	plugin := w.hosts[host].PluginPid()
	for proc.Sleep(ctx, time.Millisecond) {
		if syscall.Kill(plugin, 0) != nil {
			return true
		}
	}
	return false
}

// served waits until a host has acquired, or failed to acquire, all locks of its last request.
func (w *watcher) served(ctx context.Context, number int) bool {
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	h := w.hosts[number]
	return h.Await(ctx, func(s results.Seen) bool { return h.asked.Load() > 0 && h.got(s) >= int(h.asked.Load()) }) == nil
}

const servedTimeout = 30 * time.Second

// got returns the number of locks in the host's last request that were granted or have failed.
func (h *Host) got(s results.Seen) int {
	n, since := 0, h.askedAt.Load()
	for _, l := range s.Holds {
		if l.AskedNs >= since {
			n++
		}
	}
	for _, c := range s.Calls {
		if c.Failed() && c.SentNs >= since {
			n++
		}
	}
	return n
}
