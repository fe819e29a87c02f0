package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// Scenario is one way to load a backend.
type Scenario struct {
	Name string
	Doc  string // one line
	// Processes reports whether hosts are separate processes. That excludes backends
	// of scope host, and libraries in this process.
	Processes bool
	// PluginsOnly reports whether the scenario is about plugins, and so excludes baselines.
	PluginsOnly bool
	// MinClients is the fewest callers with which it makes sense; 0 is 1.
	MinClients int
	// Workloads returns the loads that the scenario runs.
	Workloads func(a Overrides) []Workload
	// Takes is about how long one execution takes.
	Takes func(in Input) time.Duration
	Run   func(ctx context.Context, in Input) (results.Cell, error)
}

// Workload is one load: the values of everything that varies besides the backend.
type Workload struct {
	Mode    string        // of a scenario that has several
	Hosts   int           // processes of their own; 0: the callers are in this one
	Clients int           // callers of each host
	Keys    int           // locks that the callers choose from; 0: the scenario's own
	Hold    time.Duration // how long a lease is held; 0: not at all, or the scenario's own
	RTT     time.Duration // between hosts and store, beyond that of the network
}

// Overrides are the user's settings for the workloads. An empty one means the
// scenario's own.
type Overrides struct {
	Clients, Hosts, Keys []int
	Hold                 []time.Duration
	Modes                []string // of takeover
	Candidates           int      // of takeover
	Quick                bool
}

// orUsual is the user's choice, or the usual values without one.
func orUsual[T any](asked []T, usual ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return usual
}

// All are the scenarios in the order in which they are shown.
func All() []Scenario { return []Scenario{acquire, throughput, contend, takeover, shortTTL, footprint} }

// ByName finds a scenario.
func ByName(name string) (Scenario, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return Scenario{}, false
}

// Input is one cell in one run.
type Input struct {
	Workload
	Locker load.Locker // nil for a scenario of processes
	Host   host.Spec   // of the processes
	Clock  proc.Clock
	TTL    time.Duration
	// Seed determines everything random in this cell and run.
	Seed uint64
	// Rate is how many cycles per second the open loop of acquire offers; 0:
	// half of what the closed loop did.
	Rate float64
	// Tick is how often candidates ask; 0: they wait until they are woken.
	Tick time.Duration
	// For is how long scenario ttl holds its leases.
	For time.Duration
	// Harms is how many leaders are harmed; 0: three.
	Harms int
	// Server may be harmed; nil when the servers are in containers, or another's.
	Server *servers.Server
	// Commands reads what a server has done; nil when its servers do not count.
	Commands func(ctx context.Context) (servers.Served, error)
	// Relays are the proxies between the hosts and a store that is RTT away.
	Relays []*inject.Proxy
	// Names are the locks; caller i uses Names[i%len(Names)].
	Names []string
	// WarmUp precedes Measure. What happens in it is checked, not measured.
	WarmUp, Measure time.Duration
}

// client is the client of core below the locker, or nil if the locker is of another
// library.
func (in Input) client() *core.Client {
	if l, ok := in.Locker.(interface{ Client() *core.Client }); ok {
		return l.Client()
	}
	return nil
}

// ErrNothingDone means that not one cycle of a cell succeeded. The error also wraps
// the first error that occurred.
var ErrNothingDone = errors.New("no operation succeeded")

// grace is how long after its planned end a cell may go on before its
// operations are cancelled: a store that stops answering must not hold up the
// run for ever.
const grace = 10 * time.Second

// graceOf is the grace of a cell with that measured time. It is short in a quick run,
// which a library that waits for ever would make long.
func graceOf(measure time.Duration) time.Duration {
	return min(grace, max(grace/5, 10*measure))
}

// callers prepares one caller for each client.
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

// hostsOf are the numbers of hosts of a scenario that can be spread over processes.
// In workloads one host means this process.
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

// startHosts starts the processes of a cell, none where its callers are in this
// one. When it returns no error, end lets them end.
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

// startHost starts a process that tells its times by the clock of the run.
func startHost(ctx context.Context, s host.Spec, clock proc.Clock) (*host.Process, error) {
	s.Zero = proc.MachineClock().Of(clock.Zero())
	return host.Start(ctx, s)
}

// cycleIn lets the callers cycle in each of the hosts, or in this process where there
// are none. It returns their attempts and the first error of any of them. err means
// that the attempts of a host are lost.
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
