package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// WarmUp is the default warm-up time of a measurement. QuickWarmUp is the default in a quick plan.
const WarmUp, QuickWarmUp = 200 * time.Millisecond, 50 * time.Millisecond

// Scenario is one way to put a load on a backend.
type Scenario struct {
	Name string
	Doc  string // one line
	// Processes reports whether all hosts of the scenario are separate processes. Such a scenario
	// cannot measure a backend whose locks exclude only callers of one process.
	Processes bool
	// PluginsOnly reports whether the scenario measures only plugins, and no baselines.
	PluginsOnly bool
	// MinClients is the smallest useful number of callers. 0 means 1.
	MinClients int
	Workloads  func(a Overrides) []Workload
	// Takes estimates how long one measurement of the scenario takes.
	Takes func(in Input) time.Duration
	Run   func(ctx context.Context, in Input) (results.Cell, error)
}

// Workload is the load of one measurement. It is all that varies within one scenario and backend.
type Workload struct {
	Mode    string        // the mode, for a scenario with several modes
	Hosts   int           // number of host processes; 0: the callers are in this process
	Clients int           // callers of each host
	Keys    int           // number of locks that the callers choose from; 0: the scenario's default
	Hold    time.Duration // how long a lease is held; 0: not at all, or the scenario's default
	RTT     time.Duration // added to each round trip between hosts and store
}

// Overrides has the user's settings for the workloads. Where a field is empty, the scenario uses
// its default.
type Overrides struct {
	Clients, Hosts, Keys []int
	Hold                 []time.Duration
	Modes                []string // of takeover
	Candidates           int      // of takeover
	Quick                bool
}

func orUsual[T any](asked []T, usual ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return usual
}

// All returns the scenarios in the order in which reports show them.
func All() []Scenario { return []Scenario{acquire, throughput, contend, takeover, shortTTL, footprint} }

func ByName(name string) (Scenario, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return Scenario{}, false
}

// Input has all that a scenario needs for one measurement of one backend or baseline.
type Input struct {
	Workload
	Locker load.Locker // nil if the scenario starts host processes
	Host   host.Spec   // how host processes are started
	Clock  proc.Clock
	TTL    time.Duration
	// Seed determines everything that is random in the measurement.
	Seed uint64
	// Rate is the number of cycles per second that scenario acquire starts at fixed times in its open
	// loop. 0 means half the rate that its callers reach in the closed loop.
	Rate float64
	// Tick is the interval at which a candidate asks the store. At 0, the store wakes the candidate.
	Tick time.Duration
	// For is the time for which scenario ttl holds its leases.
	For time.Duration
	// Harms is the number of leaders that scenario takeover makes fail. 0 means three.
	Harms int
	// Server is the server that a scenario may stop. It is nil if lockbench has not started the
	// server, or runs it in a container.
	Server *servers.Server
	// Commands reads how much work the servers have done. It is nil if the servers do not count it.
	Commands func(ctx context.Context) (servers.Served, error)
	// Relays are the proxies that add the RTT to each round trip between the hosts and the store.
	Relays []*inject.Proxy
	// Names are the names of the locks. Caller i uses Names[i%len(Names)].
	Names []string
	// WarmUp is the time before the measured time, whose length is Measure. Operations during WarmUp
	// are checked for violations, but not measured.
	WarmUp, Measure time.Duration
}

// ErrNothingDone means that no operation of a measurement succeeded. An error that wraps it also
// wraps the first error that occurred.
var ErrNothingDone = errors.New("no operation succeeded")

// grace is the longest time that a measurement may take beyond its planned end. After that, its
// operations are cancelled, because a store that no longer answers would block the run for ever.
const grace = 10 * time.Second

// graceOf returns the grace of a measurement whose measured time is measure. A quick run has a
// shorter grace, because a library that waits for ever would make the run long.
func graceOf(measure time.Duration) time.Duration {
	return min(grace, max(grace/5, 10*measure))
}

func callers(in Input) ([]*load.Caller, error) {
	out := make([]*load.Caller, in.Clients)
	for i := range out {
		n := i % len(in.Names)
		lock, err := in.Locker.Lock(in.Names[n], in.TTL)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", in.Names[n], err)
		}
		out[i] = &load.Caller{Client: int32(i), Name: int32(n), Clock: in.Clock, Lock: lock}
	}
	return out, nil
}

// hostsOf returns the numbers of host processes for the workloads of a scenario. It replaces 1 by
// 0, which means that the callers are in this process.
func hostsOf(a Overrides, usual ...int) []int {
	var out []int
	for _, n := range orUsual(a.Hosts, usual...) {
		if n == 1 {
			n = 0
		}
		out = append(out, n)
	}
	return out
}

// startHosts starts the host processes of a measurement, or none if the callers are in this
// process. If err is nil, the caller must later call the end function, which ends these hosts.
func startHosts(ctx context.Context, in Input) (hosts []*host.Process, end func() error, err error) {
	hosts = make([]*host.Process, in.Hosts)
	err = inject.AtOnce(in.Hosts, func(i int) (err error) {
		hosts[i], err = startHost(ctx, in.Host, in.Clock)
		return err
	})
	end = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		started := slices.DeleteFunc(slices.Clone(hosts), func(h *host.Process) bool { return h == nil })
		return inject.AtOnce(len(started), func(i int) error { return started[i].Close(ctx) })
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return hosts, end, nil
}

// startHost starts a host process that reports all times on the run's clock.
func startHost(ctx context.Context, s host.Spec, clock proc.Clock) (*host.Process, error) {
	s.Zero = proc.MachineClock().Of(clock.Zero())
	return host.Start(ctx, s)
}

// cycleIn makes callers acquire and release in a loop, in each host or, without hosts, in this
// process. If err is not nil, the attempts of at least one host are lost.
func cycleIn(ctx context.Context, in Input, hosts []*host.Process, c load.Cycles) (attempts []results.Attempt, first, err error) {
	if len(hosts) == 0 {
		attempts, first = c.Run(ctx, in.Locker, in.Clock)
		return attempts, first, nil
	}
	met := make([]error, len(hosts))
	load.Workers(len(hosts), func(i int) {
		own := c
		own.First = i * c.Callers
		met[i] = hosts[i].Cycle(ctx, own)
	})
	var lost []error
	for i, h := range hosts {
		of, err := h.Attempts()
		attempts, lost = append(attempts, of...), append(lost, err)
		if first == nil {
			first = met[i]
		}
	}
	return attempts, first, errors.Join(lost...)
}

// span has the start and the end of an operation, on the run's clock.
type span [2]int64

// tripsOf is the unit for the number of round trips that an operation waits for.
func tripsOf(op string) string { return "trips/" + op }

// trips records when data pass between the hosts of a measurement and the store.
type trips struct {
	clock proc.Clock
	half  int64 // half of a round trip, in nanoseconds
	ends  []func()

	mu     sync.Mutex
	passed []passage // in the order of their times
}

// passage is the arrival of data at a relay, which is a proxy that adds latency.
type passage struct {
	at  int64
	way inject.Direction
}

// watch starts to record when data arrive at the relays. Without relays, it records nothing.
func (in Input) watch() *trips {
	t := &trips{clock: in.Clock, half: int64(in.RTT / 2)}
	for _, relay := range in.Relays {
		t.ends = append(t.ends, relay.Observe(func(way inject.Direction) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.passed = append(t.passed, passage{t.clock.Now(), way})
		}))
	}
	return t
}

func (t *trips) end() {
	for _, end := range t.ends {
		end()
	}
}

// The in method counts the round trips that an operation waited for during its span s. It looks for
// a request, a reply, the next request and so on, over all connections together. Data reach the
// other side half a round trip after a relay gets them. Data that a relay gets before that moment
// cannot be an answer, so requests to several nodes at once count as one round trip. Data of other
// operations add a round trip only if this operation is slow for another reason.
func (t *trips) in(s span) (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.passed, s[0], func(p passage, at int64) int { return cmp.Compare(p.at, at) })
	next, there := inject.Requests, s[0]
	for _, p := range t.passed[i:] {
		if p.at+t.half > s[1] {
			break
		}
		if p.way != next || p.at < there {
			continue
		}
		there, next = p.at+t.half, inject.Replies
		if p.way == inject.Replies {
			n, next = n+1, inject.Requests
		}
	}
	return n
}

// note adds an operation's latencies to the cell, and the median number of its round trips.
func (t *trips) note(cell *results.Cell, op string, all []span) {
	var took, turns []int64
	for _, s := range all {
		took = append(took, max(0, s[1]-s[0]))
		if len(t.ends) > 0 {
			turns = append(turns, t.in(s))
		}
	}
	if len(all) > 0 {
		cell.Latencies[op] = took
	}
	if slices.Sort(turns); len(turns) > 0 {
		cell.Values[tripsOf(op)] = float64(results.Quantile(turns, 0.5))
	}
}
