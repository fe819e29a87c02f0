package faults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
)

// teardown ends all callers and hosts, except living hosts of a soak, and looks for leftovers.
func (p *player) teardown(ctx context.Context, w *System, h *History) error {
	h.Stopped = proc.Now()
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = inject.AtOnce(len(w.Hosts), func(i int) error {
		if !w.Hosts[i].Alive() {
			return nil
		}
		return w.Hosts[i].Release(releasing)
	}) // the look method finds locks that were not released
	over := w.Hosts
	if p.soak {
		over = slices.DeleteFunc(slices.Clone(w.Hosts), func(h *Host) bool { return h.Alive() })
	}
	for _, of := range w.Hosts {
		h.Alive = append(h.Alive, of.Alive())
	}
	h.Left = leave(over)
	for i, of := range w.Hosts {
		h.Seen = append(h.Seen, of.Seen())
		h.Crashed = append(h.Crashed, of.Crashed())
		h.Alive[i] = h.Alive[i] && !of.Crashed()
	}
	if p.files != "" {
		return nil
	}
	if err := p.look(ctx, w, h); err != nil {
		return err
	}
	if p.soak {
		h.Left = append(h.Left, deaf(ctx, w.Hosts, h.prefix)...)
	}
	if err := p.inStore(ctx, h); err != nil || !p.soak {
		return err
	}
	return p.use(ctx, w)
}

// The leave function ends hosts, and describes the processes and files that they leave behind.
func leave(hosts []*Host) []string {
	plugins := make([]int, len(hosts))
	for i, h := range hosts {
		plugins[i] = h.PluginPid()
	}
	left := shutAll(hosts)
	for i, h := range hosts {
		left = append(left, leftOf(h, plugins[i])...)
	}
	return left
}

// inStore adds to h.Left the data that hosts left in the store. It waits up to maxTTL until there
// are no such data, because leases and queue entries of dead hosts must expire first.
func (p *player) inStore(ctx context.Context, h *History) error {
	var left []string
	for deadline := time.Now().Add(maxTTL); ; {
		var err error
		if left, err = p.environment.Leftovers(ctx, h.prefix); err != nil {
			return err
		}
		if len(left) == 0 || time.Now().After(deadline) || !proc.Sleep(ctx, 200*time.Millisecond) {
			break
		}
	}
	for _, key := range left {
		h.Left = append(h.Left, "in the store: "+key)
	}
	return nil
}

func leftOf(h *Host, plugin int) []string {
	var left []string
	for deadline := time.Now().Add(claim.ProcessGone); plugin > 0 && syscall.Kill(plugin, 0) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			left = append(left, fmt.Sprintf("plugin process %d of host %s", plugin, h.Name()))
			break
		}
	}
	files, err := os.ReadDir(h.Dir)
	if err != nil {
		return append(left, err.Error())
	}
	for _, f := range files {
		left = append(left, fmt.Sprintf("%s in the temporary directory of host %s", f.Name(), h.Name()))
	}
	return left
}

// deaf makes each living host acquire a new lock, and describes the hosts that cannot acquire it.
// The locks of the schedule do not reveal such a host, because other hosts acquire them.
func deaf(ctx context.Context, hosts []*Host, prefix string) []string {
	// A host pauses for up to PluginBack before it restarts a plugin that fails again and again.
	ctx, cancel := context.WithTimeout(ctx, claim.PluginBack(9)+startTimeout+endTimeout)
	defer cancel()
	failures := make([]string, len(hosts))
	_ = inject.AtOnce(len(hosts), func(i int) error {
		h := hosts[i]
		if !h.Alive() {
			return nil
		}
		lock, err := h.Lock(fmt.Sprint(prefix, h.Name()), maxTTL)
		if err != nil {
			return err
		}
		if lease, err := lock.Acquire(ctx); err != nil {
			failures[i] = fmt.Sprintf("host %s cannot acquire a free lock: %v", h.Name(), err)
		} else {
			_ = lease.Release(ctx) // inStore finds a lock that is left
		}
		return nil
	})
	return slices.DeleteFunc(failures, func(s string) bool { return s == "" })
}

// The look method starts a host that acquires every lock, to find locks that were not released.
func (p *player) look(ctx context.Context, w *System, h *History) error {
	probe, err := host.Start(ctx, p.spec(nil, len(w.Hosts), w.Dir, p.backend.Path))
	if err != nil {
		return err
	}
	defer func() {
		if err := shut(probe); err != nil {
			h.Left = append(h.Left, fmt.Sprintf("the host that looked at the locks at the end: %v", err))
		}
	}()
	asked := proc.Now()
	timeout := maxTTL + endTimeout
	bounded, cancel := context.WithTimeout(ctx, timeout+endTimeout)
	defer cancel()
	if err := probe.Acquire(host.Locks(h.prefix, h.names(), maxTTL), timeout); err != nil {
		return err
	}
	_ = probe.Await(bounded, func(s results.Seen) bool { return len(s.Holds)+len(s.Failed()) >= h.names() })
	seen := probe.Seen()
	found := map[int]time.Duration{}
	for _, l := range seen.Holds {
		found[l.Name] = time.Duration(l.GrantedNs - asked)
	}
	for i := range h.names() {
		took, granted := found[i]
		probe := check.Probe{Name: i, Took: took}
		if !granted {
			probe.Took, probe.Error = time.Duration(proc.Now()-asked), fmt.Sprint(seen.Failed())
		}
		h.Probes = append(h.Probes, probe)
	}
	_ = probe.Release(bounded)
	return nil
}
