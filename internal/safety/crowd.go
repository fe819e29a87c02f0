package safety

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/recorder"
)

const (
	// crowdHost is the number of the host that keeps many leases.
	crowdHost = 2
	// crowdTTL is that of its leases: as long as that of the faults that a lease
	// must survive.
	crowdTTL = 10 * time.Second
	// gatherFor is how long a crowd may take until it is whole: a server
	// that votes and was restarted is let in again after a TTL.
	gatherFor = time.Minute
)

// startCrowd starts the third host, on paths of its own.
func (w *system) startCrowd(ctx context.Context) (err error) {
	for i := range w.soak.Crowd {
		w.names = append(w.names, fmt.Sprint("crowd-", i))
	}
	cfg := merged(w.backend.Config, w.environment.ConfigOf(nil))
	if cfg["node_timeout"] != "" {
		// As long as the TTL allows: that of the rounds is short for a busy machine.
		cfg["node_timeout"] = (crowdTTL / 20).String()
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	w.crowd, err = recorder.Start(ctx, recorder.Spec{
		Backend: w.backend.Name, Path: w.backend.Path, NoMTLS: w.backend.NoMTLS, Host: crowdHost,
		Config: cfg, Resources: w.resources, TempDir: w.dir,
	})
	return err
}

// keep lets the crowd take its leases, and waits until it has all of them.
func (w *system) keep(ctx context.Context) error {
	if err := w.crowd.Keep("crowd-", w.soak.Crowd, crowdTTL); err != nil {
		return err
	}
	return w.gather(ctx)
}

// gather waits until the crowd is whole.
func (w *system) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	if err := w.crowd.AwaitCrowd(ctx, w.soak.Crowd); err != nil {
		return fmt.Errorf("the crowd gets its %d leases: %w, %v", w.soak.Crowd, err, w.crowd.Seen().Failed)
	}
	return nil
}

// leave lets the crowd give everything back, and looks at its processes.
func (w *system) leave(ctx context.Context) error {
	releasing, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	if err := w.crowd.Release(releasing); err != nil {
		return fmt.Errorf("the crowd releases: %w", err)
	}
	w.judgeCrowd(false)
	return w.look(ctx, "crowd", w.crowd)
}

// harmsCrowd reports whether a fault may cost a crowd its leases: one that stops
// all servers from working. Proxies do not stand in its way.
func harmsCrowd(f fault.Fault) bool {
	return !f.Keeps && slices.ContainsFunc(f.Needs, func(p fault.Power) bool {
		return p == fault.PowerServers || p == fault.PowerReadOnly || p == fault.PowerExhaust
	})
}

// judgeCrowd takes what the crowd has told since the last call. Leases that
// were lost are false losses unless they are excused. It returns how many were lost.
func (w *system) judgeCrowd(excused bool) string {
	c := w.crowd.TakeCrowd()
	w.crowd.Forget()
	for i := range c.Attempts {
		a := &c.Attempts[i]
		for _, t := range []*int64{&a.Asked, &a.Answered, &a.Ended, &a.Done} {
			if *t > 0 {
				*t -= w.began
			}
		}
	}
	w.checker.Add(record.Section{
		Backend: w.backend.Name, Kind: record.KindPlugin, Fencing: w.backend.Fencing, Scenario: "soak", Names: w.names,
	}, c.Attempts)
	if len(c.Losses) == 0 {
		return "0"
	}
	first := c.Losses[0]
	lost := fmt.Sprintf("%d, the first after %v (%s)", len(c.Losses), time.Duration(first.At-w.began).Round(time.Millisecond), first.Cause)
	if !excused {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found.FalseLosses = append(w.found.FalseLosses, fmt.Sprintf("the crowd in round %d, %s: %s", w.found.Rounds+1, w.fault.Name, lost))
	}
	return lost
}

// concludeCrowd adds the verdict on the crowd.
func (w *system) concludeCrowd() {
	v := w.checker.Verdict()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Grants += v.Granted()
	for _, one := range v.Violations {
		w.found.Violations = append(w.found.Violations, one.String())
	}
}
