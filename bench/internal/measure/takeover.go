package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

var takeover = Scenario{
	Name:      "takeover",
	Doc:       "failover time: how soon a waiting process leads after the leader was harmed at a random moment of its renewal; with the TTL that the lease had left, and whether the old leader noticed before it wrote again",
	Processes: true,
	Workloads: takeoverWorkloads,
	Takes:     takeoverTakes,
	Run:       runTakeover,
}

const (
	// campaigners is the default number of candidates.
	campaigners = 2
	// The names constant is the number of lock names that the candidates campaign for. A leader that
	// fails may lead several of these names.
	names = 8
	// harms is the default number of leaders that fail in one run. A full plan has ten runs, so 30
	// leaders fail in all.
	harms = 3
	// queueing is the shortest time before a leader fails. In this time the other candidates enter the
	// store's queues.
	queueing = 100 * time.Millisecond
	// quickPhases*Measure limits the random time before a leader fails, in modes that do not wait for
	// the TTL. With the default TTL, only quick runs reach this limit.
	quickPhases = 4
	// startUp is the approximate time in which a host process starts.
	startUp = 150 * time.Millisecond
)

func takeoverWorkloads(a Overrides) []Workload {
	var out []Workload
	for _, m := range orUsual(a.Modes, killHost.name) {
		out = append(out, Workload{Mode: m, Hosts: cmp.Or(a.Candidates, campaigners), Clients: names})
	}
	return out
}

func takeoverTakes(in Input) time.Duration {
	m, _ := modeByName(in.Mode)
	each := startUp + queueing + phaseSpan(in, m)/2
	switch {
	case m.waits != nil:
		each += m.waits(in.TTL)
	case in.Host.Baseline != "" && m.name == killHost.name: // no plugin releases a baseline's lease
		each += ttlLeft(in.TTL)
	}
	return time.Duration(in.Hosts)*startUp + time.Duration(cmp.Or(in.Harms, harms))*each
}

// phaseSpan returns the upper limit of the random time before a leader fails: the time between two
// renewals. If the mode does not wait for the TTL, the limit is at most quickPhases*Measure.
func phaseSpan(in Input, m mode) time.Duration {
	if m.waits == nil {
		return min(in.TTL/3, quickPhases*in.Measure)
	}
	return in.TTL / 3
}

func runTakeover(ctx context.Context, in Input) (cell results.Cell, err error) {
	m, ok := modeByName(in.Mode)
	if !ok {
		return cell, fmt.Errorf("takeover has no mode %q", in.Mode)
	}
	scratch, err := servers.NewScratch()
	if err != nil {
		return cell, err
	}
	s := newElection(in, m)
	s.system.Dir = filepath.Join(scratch.Dir(), "hosts")
	s.system.AtEnd(scratch.Close)
	if m.waits != nil || in.Host.Baseline != "" { // such a takeover waits for a time to pass, not for the store
		in.Relays = nil
	}
	s.passing = in.watch()
	defer s.passing.end()
	began := in.Clock.Now()
	err = s.run(ctx)
	err = errors.Join(err, s.end(ctx))
	cell = s.measured(time.Duration(in.Clock.Now() - began))
	if err == nil && cell.Cycles == 0 {
		err = ErrNothingDone
	}
	return cell, err
}

func (s *election) run(ctx context.Context) error {
	for range s.in.Hosts {
		if err := s.join(ctx); err != nil {
			return err
		}
	}
	all := make([]int32, len(s.seats))
	for i := range all {
		all[i] = int32(i)
	}
	if err := s.await(ctx, s.in.TTL+grace, "every name has a leader", s.led(all, 0)); err != nil {
		return fmt.Errorf("%w: %w", ErrNothingDone, err)
	}
	phases := rand.New(rand.NewPCG(s.in.Seed, 0x7068617365))
	for range cmp.Or(s.in.Harms, harms) {
		if !proc.Sleep(ctx, queueing+time.Duration(phases.Int64N(int64(phaseSpan(s.in, s.mode))))) {
			return ctx.Err()
		}
		if err := s.succeed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// succeed harms the host that leads the most names or, in some modes, a server. It waits until each
// name that this host led has a leader again, and then heals the fault.
func (s *election) succeed(ctx context.Context) error {
	var h incident
	elected := func() bool {
		h = s.aim()
		return h.victim != nil
	}
	if err := s.await(ctx, s.in.TTL+grace, "a leader", elected); err != nil {
		return err
	}
	h.from = s.in.Clock.Now()
	if err := s.harm(ctx, &h); err != nil {
		return fmt.Errorf("%w: %w", ErrNothingDone, err)
	}
	h.until = s.in.Clock.Now()
	done := s.led(h.names, h.from)
	if s.mode.server {
		done = s.confirmed(h.names, h.until)
	}
	if err := s.await(ctx, s.in.TTL+grace, "a new leader", done); err != nil {
		return err
	}
	s.sample(&h)
	if err := s.repair(ctx, &h); err != nil {
		return fmt.Errorf("%w: after the takeover: %w", ErrNothingDone, err)
	}
	return s.await(ctx, s.in.TTL+grace, "every name has a leader again", s.led(h.names, 0))
}

func (s *election) repair(ctx context.Context, h *incident) error {
	switch {
	case s.mode.kills:
		return errors.Join(s.heal(h), s.join(ctx)) // a new candidate replaces the killed candidate
	case s.mode.name == "freeze":
		resumed := s.in.Clock.Now()
		return errors.Join(s.heal(h), s.noticed(ctx, h, resumed))
	case s.mode.expires:
		return errors.Join(s.noticed(ctx, h, 0), s.heal(h))
	}
	return nil
}

// incident is one injected fault, and the leader at which it is aimed, called the victim.
type incident struct {
	victim *faults.Host
	names  []int32 // names that the victim led
	before []int   // indexes of the victim's terms for these names
	// The fault was injected between the times from and until.
	from, until int64
}

// aim chooses as victim the candidate that leads the most names. There is no victim if all
// candidates have lost their leases, for example on a busy machine. The caller must hold mu.
func (s *election) aim() incident {
	led := map[int][]int32{} // by candidate
	var h incident
	for name, i := range s.seats {
		if i < 0 || !s.terms[i].Held() {
			continue
		}
		id := s.terms[i].Host
		led[id] = append(led[id], int32(name))
		if n := led[id]; len(n) > len(h.names) {
			h.victim, h.names = s.system.Hosts[id], n
		}
	}
	for _, n := range h.names {
		h.before = append(h.before, s.seats[n])
	}
	return h
}

func Modes() []string {
	var names []string
	for _, m := range modes {
		names = append(names, m.name)
	}
	return names
}

func ModeDoc(name string) string {
	m, _ := modeByName(name)
	return m.doc
}

func modeByName(name string) (mode, bool) {
	i := slices.IndexFunc(modes, func(m mode) bool { return m.name == name })
	if i < 0 {
		return mode{}, false
	}
	return modes[i], true
}

// mode is one way to make a leader fail, such as kill-host.
type mode struct {
	name string
	doc  string // one line
	// actions are done to the leader's host, in the order of the slice.
	actions []string
	// kills reports whether the mode ends the leader's host.
	kills bool
	// server reports whether the mode makes a server fail. The leader may then stay the leader.
	server bool
	// expires reports whether the leader's lease ends only by its TTL, so that an earlier takeover is
	// a finding. In other modes, the host or the plugin releases the lease, or a server fails.
	expires bool
	// waits estimates how long a takeover takes. It is nil if a takeover takes almost no time.
	waits func(ttl time.Duration) time.Duration
	// inject injects a fault that is not an action on a host. It is nil if the mode has no such fault.
	inject func(ctx context.Context, s *election, h *incident) error
}

// proxied reports whether the mode breaks connections. Each candidate then needs proxies of its
// own.
func (m mode) proxied() bool { return slices.Contains(m.actions, "black-hole") }

var killHost = mode{
	name:    "kill-host",
	doc:     "SIGKILL to the host process; its plugin releases what it held",
	actions: []string{"kill-host"}, kills: true,
}

// ttlLeft returns the average time for which a lease lasts after its holder fails. The holder fails
// at a random time between two renewals, which are a third of the TTL apart.
func ttlLeft(ttl time.Duration) time.Duration { return ttl * 5 / 6 }

var modes = []mode{
	{
		name: "resign",
		doc:  "the leader releases in order",
		inject: func(ctx context.Context, s *election, h *incident) error {
			if err := h.victim.Release(ctx); err != nil {
				return err
			}
			proc.Sleep(ctx, between) // the pause of any candidate after its term
			return s.campaign(h.victim)
		},
	},
	killHost,
	{
		name:    "kill-machine",
		doc:     "connections are cut off without a FIN, then host and plugin are stopped and killed",
		actions: []string{"black-hole", "freeze-host", "kill-both"}, kills: true,
		expires: true, waits: ttlLeft,
	},
	{
		name:    "freeze",
		doc:     "SIGSTOP to the host process, which goes on when another one leads",
		actions: []string{"freeze-host"},
		expires: true, waits: ttlLeft,
	},
	{
		name:    "partition",
		doc:     "the leader's connections to the store are cut off and later healed; it goes on running",
		actions: []string{"black-hole"},
		expires: true, waits: ttlLeft,
	},
	{
		name:   "server-restart",
		doc:    "SIGKILL to one server, which is started again at once",
		server: true,
		waits:  func(time.Duration) time.Duration { return 2 * time.Second },
		inject: func(ctx context.Context, s *election, _ *incident) error {
			return errors.Join(s.in.Server.Stop(), s.in.Server.Start(ctx, s.in.Server.Keeps()))
		},
	},
}

// NotPossible returns why the input's mode cannot be measured, or "" if the mode can be measured.
func NotPossible(in Input) string {
	m, _ := modeByName(in.Mode)
	if m.server && in.Server == nil {
		return "which harms servers that lockbench has started as processes, and no others"
	}
	if m.proxied() {
		nowhere := func(address string) (string, error) { return address, nil }
		if _, err := kinds.Route(in.Host.Backend, in.Host.Config, nowhere); err != nil {
			return fmt.Sprintf("which needs proxies: %v", err)
		}
	}
	return ""
}
