package safety

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/store"
)

const (
	// restBetween is the pause between two faults.
	restBetween = 2 * time.Second
	// poolHost is the number of the host that keeps many leases.
	poolHost = 2
	// poolTTL is that of its leases: as long as that of the faults that a lease
	// must survive.
	poolTTL = 10 * time.Second
	// gatherFor is how long a pool may take until it is whole, and to give
	// everything back: a server that votes and was restarted is let in again
	// after a TTL.
	gatherFor = time.Minute
)

// poolHold is how long the pool holds a lease before it gives it back and takes
// it again.
var poolHold = host.Range{poolTTL / 2, 5 * poolTTL / 2}

// ErrUnbearable is the end of a backend that bears none of the faults of a soak.
var ErrUnbearable = errors.New("it bears none of these faults over and over")

// Soak lets hosts live long while one fault after the other is injected. On
// each backend, all at the same time, two hosts go through the rounds of this
// package, and a third one keeps a pool of leases with a TTL of 10 s, of
// which it always gives some back to take them again.
type Soak struct {
	Backends []Backend
	// Faults are those that are injected, of those that a backend bears; none means
	// all of these.
	Faults []fault.Fault
	// Length is for how long it goes on, to begin with the first start. On each
	// backend there is at least one fault.
	Length time.Duration
	// Seed decides in which order faults are injected, and at which moments of a
	// renewal.
	Seed uint64
	// PoolSize is how many leases are kept on each backend.
	PoolSize int
	// Log is told how it goes on, from any goroutine.
	Log func(format string, args ...any)
}

// Soaked is what was found on one backend.
type Soaked struct {
	Backend string
	// Err is why it ended early.
	Err    error
	Rounds int
	Grants int // judged, those of the pool among them
	// Violations are the rules that were broken, and who broke them. Bad are the
	// rounds in which that was, those of the pool among them.
	Violations []string
	Bad        []record.Round
	// ShortLosses are the leases with a TTL of 2 s that were lost although no
	// fault explains it: a busy machine may.
	ShortLosses int
	// Usages are those of the processes, in the order of their starts.
	Usages []*Usage
}

// Run soaks all backends, and returns what was found in their order.
func (s Soak) Run(ctx context.Context) (found []Soaked, err error) {
	scratch, err := env.NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	found = make([]Soaked, len(s.Backends))
	began, until := proc.Now(), time.Now().Add(s.Length)
	var beginning sync.Mutex
	var work sync.WaitGroup
	for i, b := range s.Backends {
		found[i].Backend = b.Name
		w := &system{soak: s, until: until, faults: s.faultsOf(b.Name), tokens: map[int]uint64{}, found: &found[i]}
		w.cell = &cell{backend: b, ttl: TTL, runner: &runner{
			began: began, random: rand.New(rand.NewPCG(s.Seed, uint64(i))), dir: scratch.Dir(),
		}}
		work.Go(func() {
			if w.found.Err = w.run(ctx, &beginning); w.found.Err != nil {
				s.Log("%s ends early: %v", b.Name, w.found.Err)
			}
		})
	}
	work.Wait()
	return found, ctx.Err()
}

// faultsOf are those that are injected on a backend.
func (s Soak) faultsOf(backend string) []fault.Fault {
	return slices.DeleteFunc(bearable(backend), func(f fault.Fault) bool {
		chosen := func(c fault.Fault) bool { return c.Name == f.Name }
		return len(s.Faults) > 0 && !slices.ContainsFunc(s.Faults, chosen)
	})
}

// bearable are the faults that a backend must bear, over and over, on the same
// servers: of no documented double grant, and after which these are what they
// were before. A clock that is set right again jumps, a replica that was
// promoted stays the master, and keys that were evicted are gone. Sentinel and
// Cluster are other servers.
func bearable(backend string) []fault.Fault {
	return slices.DeleteFunc(fault.All(), func(f fault.Fault) bool {
		_, documented := claim.TermsOf(backend).Exempt(claim.Overlap, f.Produces)
		return documented || f.Control || f.Config != nil || store.Of(backend).Fits(f) != "" ||
			slices.ContainsFunc(f.Needs, func(p fault.Capability) bool { return slices.Contains(unbearable, p) })
	})
}

var unbearable = []fault.Capability{fault.CapClock, fault.CapReplica, fault.CapSentinel, fault.CapSlots, fault.CapEvict}

// system is one backend in a soak.
type system struct {
	*cell
	soak   Soak
	until  time.Time // faults are injected
	faults []fault.Fault
	pool   *host.Process
	tokens map[int]uint64 // the newest of the pool, by the number of the name
	found  *Soaked
}

// run begins with a calm round, after which every process has done what it
// does for the first time, and is looked at for the first time. One backend
// begins after the other: to start servers and pools is the hardest work.
func (w *system) run(ctx context.Context, beginning *sync.Mutex) (err error) {
	if len(w.faults) == 0 {
		return ErrUnbearable
	}
	defer func() { err = errors.Join(err, w.endAll(ctx)) }()
	beginning.Lock()
	err = inTurn(ctx, w.open, w.keep, w.calm, w.leave, w.keep)
	beginning.Unlock()
	if err != nil {
		return err
	}
	return inTurn(ctx, w.injections, w.leave)
}

func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open starts servers for all of the faults, and the host of the pool on paths
// of its own.
func (w *system) open(ctx context.Context) (err error) {
	if w.resources.Dir, err = os.MkdirTemp(w.dir, w.backend.Name+"-"); err != nil {
		return err
	}
	all := store.Requirements{Many: true, TTL: poolTTL, Plugin: w.backend.Path, Dir: w.dir}
	for _, f := range w.faults {
		all.Needs = append(all.Needs, f.Needs...)
	}
	if w.environment, err = store.Of(w.backend.Name).Open(ctx, all); err != nil {
		return err
	}
	cfg := driver.Config{}
	if w.environment.Config["node_timeout"] != "" {
		// As long as the TTL allows: that of the rounds is short for a busy machine.
		cfg["node_timeout"] = (poolTTL / 20).String()
	}
	w.pool, err = w.start(ctx, poolHost, nil, cfg)
	return err
}

// keep lets the pool take its leases, and waits until it has all of them.
func (w *system) keep(ctx context.Context) error {
	for i := range w.soak.PoolSize {
		err := w.pool.Work(host.Workload{
			Kind: host.KindLock, Prefix: "pool-", First: i, Names: 1, Callers: 1, TTL: poolTTL, Seed: w.random.Uint64(),
			Limit: host.Range{gatherFor, gatherFor}, Hold: poolHold, Look: time.Second,
		})
		if err != nil {
			return err
		}
	}
	return w.gather(ctx)
}

// gather waits until the pool is whole: each of its leases was held at some time
// from now on.
func (w *system) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	began, held := proc.Now(), 0
	err := w.pool.Await(ctx, func(s host.Seen) bool {
		has := make([]bool, w.soak.PoolSize)
		held = 0
		for _, l := range s.Leases {
			if l.DoneNs == 0 && (l.ReleaseNs == 0 || l.ReleaseNs > began) && !has[l.Name] {
				has[l.Name] = true
				held++
			}
		}
		return held == len(has)
	})
	if err != nil {
		return fmt.Errorf("the pool has %d of its %d leases: %w", held, w.soak.PoolSize, err)
	}
	return nil
}

// leave lets the pool give everything back, and looks at its processes.
func (w *system) leave(ctx context.Context) error {
	releasing, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	if err := w.pool.Release(releasing); err != nil {
		return fmt.Errorf("the pool releases: %w", err)
	}
	w.judgePool(fault.Fault{Name: "no fault", KeepsLeases: true})
	return w.look(ctx, "pool", w.pool)
}

// calm is a round without a fault. A host that is alone has none: it would
// wait for itself.
func (w *system) calm(ctx context.Context) error {
	if w.alone() {
		return w.one(ctx, w.faults[0])
	}
	return w.one(ctx, fault.Fault{Name: "calm", Acts: restBetween})
}

// injections injects all faults in an order that the seed decides, then all of
// them in another one, until the time is over.
func (w *system) injections(ctx context.Context) error {
	for {
		w.random.Shuffle(len(w.faults), func(i, j int) { w.faults[i], w.faults[j] = w.faults[j], w.faults[i] })
		for _, f := range w.faults {
			if err := w.one(ctx, f); err != nil || time.Now().After(w.until) {
				return err
			}
		}
	}
}

// endAll ends hosts and servers.
func (w *system) endAll(ctx context.Context) error {
	err := w.end(ctx)
	if w.pool != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		err = errors.Join(err, w.pool.Close(ctx))
	}
	if w.environment != nil {
		err = errors.Join(err, w.environment.Close())
	}
	return err
}

// one goes through one round and judges it.
func (w *system) one(ctx context.Context, f fault.Fault) error {
	w.fault, w.ttl = f, ttlOf(f)
	w.found.Rounds++
	r := roundOf(w.backend, f)
	r.Round = w.found.Rounds
	err := w.play(ctx, &r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		if err = w.recover(ctx, f); err != nil {
			r.Failure = err.Error()
		}
	}
	w.judge("the hosts", r)
	w.judgePool(f)
	if err != nil {
		return fmt.Errorf("round %d, %s: %w", r.Round, f.Name, err)
	}
	if w.alone() {
		return w.look(ctx, "holder", w.holder)
	}
	return errors.Join(w.look(ctx, "holder", w.holder), w.look(ctx, "rival", w.rival))
}

// recover waits until the fault is over for everybody, and removes what was
// written under it.
func (w *system) recover(ctx context.Context, f fault.Fault) error {
	proc.Sleep(ctx, restBetween)
	if f.RivalAsksLate { // data were lost, and the node may not vote for a while
		proc.Sleep(ctx, poolTTL)
	}
	if err := w.gather(ctx); err != nil {
		return err
	}
	files, err := os.ReadDir(w.resources.Dir)
	for _, file := range files {
		err = errors.Join(err, os.Remove(filepath.Join(w.resources.Dir, file.Name())))
	}
	return err
}

// judgePool judges what the pool has told since the last call as a round of its
// own, in which only a fault of the servers may cost a lease, unless it is one
// that leases must survive. Proxies do not stand in its way.
func (w *system) judgePool(f fault.Fault) {
	r := roundOf(w.backend, f)
	r.Round, r.Names, r.TTLms = w.found.Rounds, w.soak.PoolSize, poolTTL.Milliseconds()
	r.Keeps = f.KeepsLeases || !slices.ContainsFunc(f.Needs, func(p fault.Capability) bool {
		return p == fault.CapServers || p == fault.CapReadOnly || p == fault.CapExhaust
	})
	r.Leases = w.pool.Seen().Leases
	w.pool.Forget()
	r.Shift(-w.began)
	w.judge("the pool", r)
	// A lease that is held for long is in several rounds, and the token after it
	// in another one.
	for _, l := range r.Leases {
		switch newest := w.tokens[l.Name]; {
		case l.Token < newest:
			w.found.Violations = append(w.found.Violations,
				fmt.Sprintf("round %d, %s, the pool: lock %d was granted with token %d after %d", r.Round, r.Fault, l.Name, l.Token, newest))
		case l.Token == newest:
			w.found.Grants--
		}
		w.tokens[l.Name] = max(w.tokens[l.Name], l.Token)
	}
}

// judge asks check about one round.
func (w *system) judge(who string, r record.Round) {
	c := check.Cells([]record.Round{r})[0]
	w.soak.Log("%s %d: %s, %s: %s, %d grants, %d leases lost for no reason, %v until the next grant", r.Backend, r.Round, r.Fault, who, c.Class,
		c.Grants, c.FalseLosses, time.Duration(c.Unavailable).Round(time.Millisecond))
	w.found.Grants += c.Grants
	if r.TTLms < poolTTL.Milliseconds() {
		w.found.ShortLosses += c.FalseLosses
	}
	if c.Class != check.ClassHeld {
		w.found.Bad = append(w.found.Bad, r)
		w.found.Violations = append(w.found.Violations, fmt.Sprintf("round %d, %s, %s: %s %s", r.Round, r.Fault, who, c.Class, c.Why))
		w.found.Violations = append(w.found.Violations, c.Violations...)
	}
}
