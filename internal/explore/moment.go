package explore

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/proc"
)

// Moment is a point of the protocol at which an action can be placed.
type Moment string

// The moments of a host, as they show in what passes on its paths and in what
// it tells.
const (
	MomentSent      Moment = "request sent"      // a request has passed, and its answer has not
	MomentAnswered  Moment = "answer under way"  // an answer passes to the host
	MomentRenewal   Moment = "renewal under way" // a request passes although nobody of the host has asked for anything
	MomentRelease   Moment = "release under way" // a request passes after a hold has ended
	MomentRestarted Moment = "plugin restarting" // its plugin process has ended
)

// Moments are all of them.
func Moments() []Moment {
	return []Moment{MomentSent, MomentAnswered, MomentRenewal, MomentRelease, MomentRestarted}
}

// momentPatience is how long a moment is waited for, before an action takes
// place without it.
const momentPatience = 2 * time.Second

// watcher sees the moments of the hosts of one schedule.
type watcher struct {
	hosts []*Host
	ends  []func()

	mu      sync.Mutex
	waiting map[*awaited]bool
}

// awaited is a moment that somebody waits for. What passes at that moment waits
// until the event has taken place.
type awaited struct {
	host     int
	moment   Moment
	come     chan struct{}
	happened chan struct{}
}

// holdsFor is how long at most something that passes waits for an event.
const holdsFor = 500 * time.Millisecond

// releaseFollows is how soon after a hold has ended its release passes.
const releaseFollows = 20 * time.Millisecond

func watchMoments(w *System) *watcher {
	watch := &watcher{hosts: w.Hosts, waiting: map[*awaited]bool{}}
	for i, h := range w.Hosts {
		for _, p := range h.Paths {
			watch.ends = append(watch.ends, p.Observe(func(way fault.Direction) { watch.pass(i, way) }))
		}
	}
	return watch
}

func (w *watcher) close() {
	for _, end := range w.ends {
		end()
	}
}

// pass is told of everything that passes between host and a server.
func (w *watcher) pass(host int, way fault.Direction) {
	for _, a := range w.match(host, way) {
		close(a.come)
		select {
		case <-a.happened:
		case <-time.After(holdsFor):
		}
	}
}

// match takes out those whose moment has come.
func (w *watcher) match(host int, way fault.Direction) []*awaited {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return nil
	}
	asking, released := w.hosts[host].Asking()
	request := way == fault.Requests
	is := map[Moment]bool{
		MomentSent:     request,
		MomentAnswered: !request,
		MomentRenewal:  request && !asking,
		MomentRelease:  request && proc.Now()-released < int64(releaseFollows),
	}
	var come []*awaited
	for a := range w.waiting {
		if a.host == host && is[a.moment] {
			delete(w.waiting, a)
			come = append(come, a)
		}
	}
	return come
}

// await waits for a moment, up to momentPatience, and reports whether it came.
// happened is called when the event has taken place.
func (w *watcher) await(ctx context.Context, host int, m Moment) (met bool, happened func()) {
	ctx, cancel := context.WithTimeout(ctx, momentPatience)
	defer cancel()
	if m == MomentRestarted {
		return w.awaitRestart(ctx, host), func() {}
	}
	a := &awaited{host: host, moment: m, come: make(chan struct{}), happened: make(chan struct{})}
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
