package measure

import (
	"context"
	"errors"

	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
)

// hostsOf are the numbers of hosts of a scenario that can be spread, as its
// workloads have them: one host is this process.
func hostsOf(a Overrides) []int {
	var out []int
	for _, n := range orUsual(a.Hosts, 1) {
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
	errs := make([]error, in.Hosts)
	load.Workers(in.Hosts, func(i int) { hosts[i], errs[i] = startHost(ctx, in.Host, in.Clock) })
	end = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		errs := make([]error, len(hosts))
		load.Workers(len(hosts), func(i int) {
			if hosts[i] != nil {
				errs[i] = hosts[i].Close(ctx)
			}
		})
		return errors.Join(errs...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return hosts, end, nil
}

// startHost starts a process that tells its times by the clock of the run.
func startHost(ctx context.Context, s host.Spec, clock load.Clock) (*host.Process, error) {
	s.Zero = proc.MachineClock().Of(clock.Started())
	return host.Start(ctx, s)
}

// cycleIn lets the callers cycle in each of the hosts, or in this process where
// there are none. It returns what they have recorded and the first error that
// one of them met; err is that the attempts of a host are lost.
func cycleIn(ctx context.Context, in Input, hosts []*host.Process, c load.Cycles) (attempts []results.Attempt, first, err error) {
	if len(hosts) == 0 {
		attempts, first = collect(c.Run(ctx, in.Locker, in.Clock))
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
