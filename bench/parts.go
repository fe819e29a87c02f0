package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
)

// checkParts checks a plan with parts, which are runs on several machines that measure together.
func (p Plan) checkParts() error {
	switch {
	case p.Parts == 0:
		return nil
	case len(p.Backends) == 0:
		return usagef("parts measure one thing together: name it with --backends")
	}
	for _, b := range p.Backends {
		if p.config[b]["address"] == "" {
			return usagef("parts measure one %s together, and this one would start a server of its own: name yours, --target %s=ADDRESS", b, b)
		}
	}
	return nil
}

// join waits for the other parts (runs on other machines), and adopts their common seed. The parts
// meet in the first backend's store, through a plugin process that serves nothing else.
func (r *runner) join(ctx context.Context) error {
	if r.plan.Parts == 0 {
		return nil
	}
	store := r.subjects[0]
	b, err := r.open(ctx, described{Found: plugin.Found{Name: store.host.Backend, Path: store.host.Path}, config: store.host.Config})
	if err != nil {
		return err
	}
	r.company = core.New(b, &core.Options{Logger: r.log})
	plan := r.plan.recorded(r.backends, r.baselines)
	plan.Seed = 0
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	r.rendezvous, err = joinParts(ctx, r.company, store.Name, r.plan.Parts, r.plan.Seed, string(text))
	if err == nil {
		r.plan.Seed = r.rendezvous.seed
	}
	return err
}

const (
	// partsTimeout is the longest time that a part (one of several runs) waits for the other parts.
	partsTimeout = 5 * time.Minute
	// placeTTL is the time for which a killed part still leads its election (called its place).
	placeTTL = 10 * time.Second
	// gatherEvery is the interval at which a part checks whether the other parts have started.
	gatherEvery = 50 * time.Millisecond
	// stepEvery is the interval at which a part checks whether the other parts are ready. So the parts
	// begin to measure within about this time of each other.
	stepEvery = 2 * time.Millisecond
)

// rendezvous lets runs on several machines, called parts, measure the same thing at the same time.
// A part reads from the store under test whether the other parts are ready. It does not wait for a
// time of day, because clocks of machines differ. Each part leads one election, called its place,
// and publishes its progress in the election's value. Only one goroutine may use a rendezvous.
type rendezvous struct {
	backend string
	places  []*core.Elector
	mine    int // index of this part's place in places
	term    *core.Term
	said    station // what this part published last; its All field is the same in all parts of this rendezvous
	seed    uint64  // the seed of the part in the first place; all parts use it
}

type station struct {
	Part string `json:"part"` // a random name
	Seed uint64 `json:"seed"`
	Plan string `json:"plan"`
	// All is a hash of the names of all parts. A killed part of an earlier run may have left a value
	// in the store, but that value has another hash.
	All  string `json:"all,omitempty"`
	Step int    `json:"step"` // the step that the part is ready for
}

// joinParts returns when each part leads a place (election) and all parts have seen each other. It
// fails if plans differ in more than the seed. The part leaves its place when the client is closed.
func joinParts(ctx context.Context, client *core.Client, backend string, parts int, seed uint64, plan string) (*rendezvous, error) {
	m := &rendezvous{backend: backend, said: station{Part: rand.Text(), Seed: seed, Plan: plan}}
	ctx, cancel := context.WithTimeout(ctx, partsTimeout)
	defer cancel()
	for n := range parts {
		e, err := client.Elector(fmt.Sprintf("lockbench/parts/%d/%d", parts, n+1), &core.ElectorOptions{TTL: placeTTL})
		if err != nil {
			return nil, err
		}
		m.places = append(m.places, e)
	}
	if err := m.sit(ctx); err != nil {
		return nil, err
	}
	return m, m.gather(ctx)
}

func (m *rendezvous) sit(ctx context.Context) error {
	for {
		for n, e := range m.places {
			if h, err := e.Leader(ctx); err != nil || h.Held() {
				continue
			}
			// Do not campaign for long, because another part may already campaign for the same place.
			try, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			term, err := e.Campaign(try)
			cancel()
			if err == nil {
				m.mine, m.term = n, term
				return m.say(ctx)
			}
		}
		if !proc.Sleep(ctx, gatherEvery) {
			return m.alone("all %d places are taken, by a part too many or by those of a run that was killed: %w", len(m.places), ctx.Err())
		}
	}
}

// gather waits until each part leads a place, and has published that it saw all the other parts.
func (m *rendezvous) gather(ctx context.Context) error {
	for {
		all, there := m.look(ctx)
		if there == len(all) {
			if same, err := m.agree(ctx, all); err != nil || same {
				return err
			}
		}
		if !proc.Sleep(ctx, gatherEvery) {
			return m.alone("%d of %d came within %v", there, len(all), partsTimeout)
		}
	}
}

func (m *rendezvous) look(ctx context.Context) (all []station, there int) {
	all = make([]station, len(m.places))
	for n, e := range m.places {
		if h, err := e.Leader(ctx); err == nil && json.Unmarshal(h.Value, &all[n]) == nil && all[n].Part != "" {
			there++
		}
	}
	return all, there
}

// agree publishes that this part has seen the parts in the slice all. It reports whether each of
// these parts has published that it saw the same parts.
func (m *rendezvous) agree(ctx context.Context, all []station) (bool, error) {
	parts := ""
	for _, s := range all {
		parts += s.Part
	}
	if key := fmt.Sprintf("%.8x", sha256.Sum256([]byte(parts))); key != m.said.All {
		m.said.All = key
		return false, m.say(ctx)
	}
	for _, s := range all {
		if s.All != m.said.All {
			return false, nil
		}
	}
	for n, s := range all {
		if s.Plan != m.said.Plan {
			return false, usagef("the parts have different plans: the one of place %d is not that of place %d, which this part has", n+1, m.mine+1)
		}
	}
	m.seed = all[0].Seed
	return true, nil
}

func (m *rendezvous) say(ctx context.Context) error {
	value, err := json.Marshal(m.said)
	if err != nil {
		return err
	}
	return m.term.Proclaim(ctx, value)
}

func (m *rendezvous) alone(format string, args ...any) error {
	return Hinted(&EnvError{m.backend, fmt.Errorf("the parts are not together: "+format, args...)}, fmt.Sprintf("start %d of them, with the same flags", len(m.places)))
}

// The next method waits until all other parts have called next as many times as this part. All
// parts return from next within a few milliseconds of each other. If last is true, the run is at
// its end, and a part that has left its place counts as ready. If m is nil, there is no other part.
func (m *rendezvous) next(ctx context.Context, last bool) error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, partsTimeout)
	defer cancel()
	m.said.Step++
	if err := m.say(ctx); err != nil {
		return m.alone("this part lost its place: %w", err)
	}
	for n := 0; n < len(m.places); {
		var s station
		h, err := m.places[n].Leader(ctx)
		switch {
		case err != nil: // an error of the store, which the measurement also reports
		case h.Held() && json.Unmarshal(h.Value, &s) == nil && s.All == m.said.All:
			if s.Step >= m.said.Step {
				n++
				continue
			}
		case last:
			n++ // part n has left, because it saw that all parts were at the end
			continue
		default:
			return m.alone("part %d has ended", n+1)
		}
		if !proc.Sleep(ctx, stepEvery) {
			return m.alone("part %d is not ready: %w", n+1, ctx.Err())
		}
	}
	return nil
}
