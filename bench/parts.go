package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockbench/lockbench/core"
)

// maxParts bounds how many runs measure together.
const maxParts = 64

// checkParts finds what cannot be measured by several runs together.
func (p Plan) checkParts() error {
	switch {
	case p.Parts < 0 || p.Parts == 1 || p.Parts > maxParts:
		return usagef("%d parts are not between 2 and %d", p.Parts, maxParts)
	case p.Parts > 0 && len(p.Backends) == 0:
		return usagef("parts measure one thing together: name it with --backends")
	}
	for _, b := range p.Backends {
		if p.Parts > 0 && p.config[b]["address"] == "" {
			return usagef("parts measure one %s together, and this one would start a server of its own: name yours, --target %s=ADDRESS", b, b)
		}
	}
	return nil
}

// join waits for the other parts on the first backend of the plan, through a
// plugin that measures nothing, and takes over their seed.
func (r *runner) join(ctx context.Context) error {
	if r.plan.Parts == 0 {
		return nil
	}
	store := r.subjects[0]
	b, err := r.open(ctx, store.host.Backend, store.host.Path, store.host.Config)
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
	r.rendezvous, err = joinParts(ctx, r.company, r.plan.Parts, r.plan.Seed, string(text))
	if err != nil {
		return r.apart(err)
	}
	r.plan.Seed = r.rendezvous.seed
	return nil
}

// meet waits until all parts are about to measure their next cell.
func (r *runner) meet(ctx context.Context) error {
	if r.rendezvous == nil {
		return nil
	}
	return r.apart(r.rendezvous.next(ctx, false))
}

// apart says whose fault it is that the parts are not together.
func (r *runner) apart(err error) error {
	switch {
	case errors.Is(err, errOtherPlan):
		return usagef("%v", err)
	case errors.Is(err, errAlone):
		return &EnvError{Backend: r.subjects[0].Name, Err: err, Hint: fmt.Sprintf("start %d of them, with the same flags", r.plan.Parts)}
	}
	return err
}
