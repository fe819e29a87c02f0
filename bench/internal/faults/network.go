package faults

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// impairment is one kind of harm to the network path between a host and a server.
type impairment struct {
	name, does string
	// The do function begins the impairment. Its amount argument is the strength, from 0 to 1.
	do       func(p *inject.Proxy, amount float64) error
	lasts    Span
	stopsFor time.Duration
	// mild reports whether leases survive even if the paths to all servers are impaired.
	mild bool
	// pushes reports whether the impairment concerns messages that servers send without a request.
	pushes bool
	// swallows reports whether requests get neither a reply nor an error.
	swallows bool
}

var (
	shortly = Span{10 * time.Millisecond, 6 * time.Second}
	while   = Span{100 * time.Millisecond, 6 * time.Second}
)

// redialed is the longest time until a client notices a silent connection and replaces it.
const redialed = 4 * time.Second

var impairments = []impairment{
	{name: "black-hole", swallows: true, does: "nothing passes between %s and the servers", lasts: shortly, do: plain((*inject.Proxy).BlackHole)},
	{name: "lose-requests", swallows: true, does: "no request passes between %s and the servers", lasts: shortly, do: plain((*inject.Proxy).LoseRequests)},
	{name: "lose-replies", swallows: true, does: "no answer passes between %s and the servers", lasts: shortly, do: plain((*inject.Proxy).LoseReplies)},
	{name: "delay-requests", does: "requests are late between %s and the servers", lasts: while, do: func(p *inject.Proxy, x float64) error {
		return p.DelayRequests(late(x), 0)
	}},
	{name: "delay-replies", does: "answers are late between %s and the servers", lasts: while, do: func(p *inject.Proxy, x float64) error {
		return p.Delay(late(x), 0)
	}},
	{name: "lose-pushes", pushes: true, does: "the wake-ups of the waiters of %s are lost", lasts: while, mild: true, do: func(p *inject.Proxy, _ float64) error {
		return p.DelayPushes(0)
	}},
	{name: "late-pushes", pushes: true, does: "the wake-ups of the waiters of %s are late", lasts: while, mild: true, do: func(p *inject.Proxy, x float64) error {
		return p.DelayPushes(time.Duration((0.2 + 1.8*x) * float64(time.Second)))
	}},
	{name: "jitter", does: "answers are now and then late between %s and the servers", lasts: while, mild: true, do: func(p *inject.Proxy, x float64) error {
		d := time.Duration(2+28*x) * time.Millisecond
		return p.Delay(d, d)
	}},
	{name: "throttle", does: "the line is slow between %s and the servers", lasts: while, do: func(p *inject.Proxy, x float64) error {
		return p.Throttle(1 + int(63*(1-x)))
	}},
	{name: "fragment", does: "data come in small pieces between %s and the servers", lasts: while, mild: true, do: func(p *inject.Proxy, x float64) error {
		return p.Fragment(256-int(192*x), 200*time.Microsecond)
	}},
	{name: "resets", does: "some messages end in a reset between %s and the servers", lasts: while, mild: true, do: func(p *inject.Proxy, x float64) error {
		return p.Reset(0.002 + 0.018*x)
	}},
	{name: "forget-clients", swallows: true, does: "the connections of %s end, and the servers are not told", lasts: while, mild: true, do: plain((*inject.Proxy).ForgetClients)},
	{name: "forget-servers", swallows: true, does: "the servers see the end of the connections of %s, which is not told", lasts: while, stopsFor: redialed, do: plain((*inject.Proxy).ForgetServer)},
	{name: "hold-connections", swallows: true, does: "requests over the connections of %s wait, those over new ones pass", lasts: while, stopsFor: redialed, do: plain((*inject.Proxy).HoldConnections)},
	{name: "silence", swallows: true, does: "the connections of %s to the servers die but for the newest, and neither end is told", lasts: Span{2 * time.Second, 6 * time.Second}, stopsFor: time.Second, do: plain((*inject.Proxy).Silence)},
	{name: "refuse", does: "connections are reset and refused between %s and the servers", lasts: shortly, do: plain((*inject.Proxy).Refuse)},
	{name: "slow-start", does: "connections are slow to begin between %s and the servers", lasts: while, do: func(p *inject.Proxy, x float64) error {
		return p.SlowStart(late(x))
	}},
	{name: "cut", does: "all connections are reset between %s and the servers", mild: true, do: plain((*inject.Proxy).Cut)},
}

// late returns a delay from 5 ms (for x = 0) to 2 s (for x = 1), on a logarithmic scale.
func late(x float64) time.Duration {
	return time.Duration(5 * math.Pow(400, x) * float64(time.Millisecond))
}

func plain(do func(*inject.Proxy) error) func(*inject.Proxy, float64) error {
	return func(p *inject.Proxy, _ float64) error { return do(p) }
}

// networkActions has an action for each impairment, on a host's paths to all servers or to a share
// of them. Unless its field pushes is set, there is also an action on one of at least three paths.
var networkActions = func() []Action {
	var all, one []Action
	for _, h := range impairments {
		all = append(all, h.toAll())
		if !h.pushes { // only one server sends a waiter its wake-up
			one = append(one, h.toOne())
		}
	}
	return append(all, one...)
}()

// The action method returns an action on those paths of a host that the paths function picks.
func (h impairment) action(name string, paths func(Event, []*inject.Proxy) []*inject.Proxy) Action {
	a := Action{
		Name: name, Does: h.does, On: OnHost, Needs: []servers.Capability{servers.CapServers}, Lasts: h.lasts, Recovers: time.Second, Swallows: h.swallows,
		Inject: func(_ context.Context, w *System, e Event) error {
			return inject.Each(w.Hosts, func(host *Host) error {
				if e.Target != host.Number && e.Target != everywhere {
					return nil
				}
				return inject.Each(paths(e, host.Paths), func(p *inject.Proxy) error {
					heal, err := p.Apart(func(p *inject.Proxy) error { return h.do(p, e.Amount) })
					w.Begin(e, heal)
					return err
				})
			})
		},
		Heal: end,
	}
	if !h.mild {
		a.Stops, a.StopsFor = StopsHost, h.stopsFor
	}
	if h.lasts == (Span{}) {
		a.Heal = nil
	}
	if h.pushes {
		a.Only = func(s *servers.Kind, _ servers.Setting) bool { return s.Push != "" }
	}
	return a
}

func (h impairment) toAll() Action {
	return h.action(h.name, func(e Event, all []*inject.Proxy) []*inject.Proxy { return all[len(all)-e.Share.of(len(all)):] })
}

// toOne returns the action that impairs a host's path to one server. The action exists only in
// settings in which the other servers are a majority.
func (h impairment) toOne() Action {
	a := h.action(h.name+"-one", func(e Event, all []*inject.Proxy) []*inject.Proxy {
		n := int(e.Amount*1e6) % len(all)
		return all[n : n+1]
	})
	a.Does = strings.Replace(a.Does, "the servers", "one of the servers", 1)
	a.Needs = append(a.Needs, servers.CapMinority)
	a.Only = func(_ *servers.Kind, in servers.Setting) bool { return in.Servers >= 3 && !in.Balanced }
	a.Stops = StopsNobody
	return a
}
