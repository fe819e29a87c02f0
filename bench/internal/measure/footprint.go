package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
)

var footprint = Scenario{
	Name:        "footprint",
	Doc:         "what a host pays for having a plugin: the time from its start to the first grant, its memory when idle, and its memory and the host's with 10000 held leases (1000 with --quick); with --hold for a TTL or longer, the processor time that their renewals take, and how many are lost",
	PluginsOnly: true,
	Workloads:   footprintWorkloads,
	Takes:       func(in Input) time.Duration { return starts*startTime + rest + in.Measure + in.Hold },
	Run:         runFootprint,
}

const (
	// starts is the number of plugins that one run starts, one after another. The run measures the
	// start of each plugin, and all other figures on the last plugin.
	starts = 5
	// startTime is the approximate time that one start takes.
	startTime = 150 * time.Millisecond
	// rest is the time for which a plugin is idle before its memory is read.
	rest = 300 * time.Millisecond
	// takers is the number of goroutines that acquire leases at the same time.
	takers = 64
)

func footprintWorkloads(a Overrides) []Workload {
	leases := 10_000
	if a.Quick {
		leases = 1000
	}
	return product([]int{0}, []int{takers}, []int{leases}, orUsual(a.Hold, 0))
}

func runFootprint(ctx context.Context, in Input) (cell results.Cell, err error) {
	bounded, cancel := context.WithTimeout(ctx, starts*grace+time.Duration(in.Keys)*time.Millisecond+in.Hold)
	defer cancel()
	f := &fresh{in: in}
	defer func() {
		err = errors.Join(err, f.close(ctx))
		cell.Attempts = f.attempts
	}()
	began := in.Clock.Now()
	var first []int64
	for i := range starts {
		took, err := f.start(bounded)
		if err != nil {
			return cell, err
		}
		first = append(first, took)
		if i < starts-1 {
			if err := f.close(bounded); err != nil {
				return cell, err
			}
		}
	}
	cell = results.Cell{Latencies: map[string][]int64{"first-grant": first}, Values: map[string]float64{}}
	proc.Sleep(bounded, rest)
	if err := f.memory(bounded, &cell); err != nil {
		return cell, err
	}
	cell.Cycles, cell.Elapsed = in.Keys, time.Duration(in.Clock.Now()-began)
	return cell, ctx.Err()
}

// fresh is a plugin that runs for one measurement only.
type fresh struct {
	in       Input
	hear     func(core.Event) // if nil, events are ignored
	backend  driver.Backend
	locker   load.Locker
	attempts []results.Attempt
}

func (f *fresh) open(ctx context.Context) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	h := f.in.Host
	f.backend, err = plugin.Open(ctx, h.Backend, &plugin.Options{Path: h.Path, Config: h.Config, NoMTLS: h.NoMTLS, StartTimeout: grace, Logger: quiet})
	if err == nil {
		f.locker = load.NewCore(f.backend, &core.Options{Logger: quiet, OnEvent: f.hear})
	}
	return err
}

// start starts a plugin and acquires a lock through the plugin. It returns how long both took
// together, in nanoseconds.
func (f *fresh) start(ctx context.Context) (int64, error) {
	from := f.in.Clock.Now()
	if err := f.open(ctx); err != nil {
		return 0, err
	}
	lock, err := f.locker.Lock(f.in.Names[0], f.in.TTL)
	if err != nil {
		return 0, err
	}
	c := &load.Caller{Clock: f.in.Clock, Lock: lock}
	lease, ok := c.Acquire(ctx)
	took := f.in.Clock.Now() - from
	if ok {
		c.Release(context.WithoutCancel(ctx), lease)
	}
	f.attempts = append(f.attempts, c.Attempts...)
	if c.Err != nil || !ok {
		return 0, fmt.Errorf("%w: %w", ErrNothingDone, orStalled(c.Err))
	}
	return took, nil
}

// memory acquires a lease for each name, and measures the memory that the leases take.
func (f *fresh) memory(ctx context.Context, cell *results.Cell) error {
	pid, ok := plugin.ProcessOf(f.backend)
	if !ok {
		return errors.New("the plugin process has ended")
	}
	idle, err := proc.Resident(pid)
	if err != nil {
		return err
	}
	cs := make([]*load.Caller, len(f.in.Names)) // allocated before the heap is read
	leases := make([]load.Lease, len(cs))
	for i := range cs {
		cs[i] = &load.Caller{Client: int32(i % takers), Name: int32(i), Clock: f.in.Clock, Attempts: make([]results.Attempt, 0, 1)}
	}
	before := heap()
	load.Workers(takers, func(worker int) {
		for i := worker; i < len(cs) && ctx.Err() == nil; i += takers {
			if cs[i].Lock, cs[i].Err = f.locker.Lock(f.in.Names[i], f.in.TTL); cs[i].Err == nil {
				leases[i], _ = cs[i].Acquire(ctx)
			}
		}
	})
	after := heap()
	full, err := proc.Resident(pid)
	err = errors.Join(err, f.renewals(ctx, pid, leases, cell))
	_, first := load.Collect(cs) // a release that fails later does not affect the memory figures
	load.Workers(takers, func(worker int) {
		for i := worker; i < len(cs); i += takers {
			if leases[i] != nil {
				cs[i].Release(context.WithoutCancel(ctx), leases[i])
			}
		}
	})
	attempts, _ := load.Collect(cs)
	f.attempts = append(f.attempts, attempts...)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if first != nil {
		return fmt.Errorf("%w: %w", ErrNothingDone, first)
	}
	n := float64(len(cs))
	cell.Values["idle-bytes/plugin"], cell.Values["held-bytes/plugin"] = float64(idle), float64(full)
	cell.Values["plugin-bytes/lease"] = max(0, float64(full)-float64(idle)) / n
	cell.Values["host-bytes/lease"] = max(0, float64(after)-float64(before)) / n
	return nil
}

// renewals keeps the leases for the time in the Hold field. It records how much processor time host
// and plugin use in this time, as a share of one core, and how many leases are lost.
func (f *fresh) renewals(ctx context.Context, plugin int, leases []load.Lease, cell *results.Cell) error {
	if f.in.Hold < f.in.TTL {
		return nil
	}
	before, err := processorTime(plugin)
	began := f.in.Clock.Now()
	proc.Sleep(ctx, f.in.Hold)
	after, errAfter := processorTime(plugin)
	took := time.Duration(f.in.Clock.Now() - began)
	lost := 0
	for _, l := range leases {
		if v, ok := l.(interface{ Valid() bool }); ok && !v.Valid() {
			lost++
		}
	}
	cell.Values["lost-leases"] = float64(lost)
	if runtime.GOOS != "linux" {
		return nil // the system provides no processor times
	}
	if err := errors.Join(err, errAfter); err != nil {
		return err
	}
	cell.Values["renewal-cpu-%"] = 100 * (after - before).Seconds() / took.Seconds()
	return nil
}

// processorTime returns the processor time of this process plus that of another process.
func processorTime(other int) (sum time.Duration, err error) {
	for _, pid := range []int{os.Getpid(), other} {
		s, ok := proc.Of(pid)
		if !ok {
			return 0, fmt.Errorf("processor time of process %d: it cannot be seen", pid)
		}
		sum += s.CPU
	}
	return sum, nil
}

// heap returns the bytes in the live heap and in the stacks of this process, after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // a second time, for memory that finalizers freed after the first collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// close ends the plugin, even if ctx has ended.
func (f *fresh) close(ctx context.Context) error {
	if f.locker == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := f.locker.Close(ctx)
	f.locker = nil
	return err
}
