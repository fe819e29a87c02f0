package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// hostActions harm hosts or their plugins. If a plugin fails only once, no lease is lost, because
// the host starts another plugin and renews the leases through the new plugin.
var hostActions = []Action{
	{
		Name: "freeze-host", Does: "%s is frozen", On: OnHost, Makes: stopped, Uses: UsesProcess, Lasts: Span{10 * time.Millisecond, 6 * time.Second},
		Stops: StopsHost, Recovers: time.Second, Inject: ofHost(func(w *System, h *Host, e Event) error { return w.freeze(e, h.Pid()) }), Heal: end,
	},
	{
		Name: "slow-host", Does: "%s gets a third of the time", On: OnHost, Makes: stopped, Uses: UsesProcess, Lasts: Span{100 * time.Millisecond, 4 * time.Second},
		Inject: ofHost(func(w *System, h *Host, e Event) error {
			return w.slow(e, func() (func() error, error) { return w.pause(h.Pid()) })
		}), Heal: end,
	},
	{
		Name: "kill-host", Does: "%s is killed, its plugin is not", On: OnHost, Uses: UsesProcess, Stops: StopsHost, Ends: true,
		Inject: ofHost(func(_ *System, h *Host, _ Event) error { return kill(h.Pid()) }),
	},
	{
		Name: "kill-both", Does: "%s is killed with its plugin", On: OnHost, Uses: UsesProcess, Stops: StopsHost, Ends: true,
		Inject: ofHost(func(_ *System, h *Host, _ Event) error { return errors.Join(kill(h.plugin()), kill(h.Pid())) }),
	},
	{
		// When a frozen plugin misses a deadline, the host kills it, starts another plugin and keeps the
		// leases. So the frozen plugin may be dead when Heal resumes it.
		Name: "freeze-plugin", Does: "the plugin of %s is frozen", On: OnHost, Makes: died, Uses: UsesPlugin, Lasts: Span{10 * time.Millisecond, 6 * time.Second},
		Needs: ownStore, Recovers: time.Second, Inject: ofHost(func(w *System, h *Host, e Event) error { return w.freeze(e, h.plugin()) }), Heal: end,
	},
	{
		Name: "slow-plugin", Does: "the plugin of %s gets a third of the time", On: OnHost, Uses: UsesPlugin, Lasts: Span{100 * time.Millisecond, 4 * time.Second},
		Inject: ofHost(func(w *System, h *Host, e Event) error {
			first, plugin := h.PluginPid(), h.plugin()
			return w.slow(e, func() (func() error, error) {
				if now := h.PluginPid(); now != first {
					first, plugin = now, h.plugin()
				}
				return w.pause(plugin)
			})
		}), Heal: end,
	},
	{
		Name: "kill-plugin", Does: "the plugin of %s is killed", On: OnHost, Makes: died, Uses: UsesPlugin, Needs: ownStore, Recovers: time.Second,
		Inject: ofHost(func(_ *System, h *Host, _ Event) error { return kill(h.plugin()) }),
	},
	{
		// After each failure of a plugin, the host waits longer before it starts another. Leases may end.
		Name: "crash-loop", Does: "the plugin of %s is killed three times, as soon as it is there", On: OnHost, Makes: died, Uses: UsesPlugin, Needs: ownStore,
		Lasts: Span{time.Second, 3 * time.Second}, Stops: StopsHost, Recovers: 2 * time.Second, Inject: ofHost(crashLoop), Heal: end,
	},
	{
		// After several kills, the host's pause before it starts a plugin can be longer than a TTL.
		Name: "kill-waiter", Does: "the plugin of %s is killed each second, when a caller waits", On: OnHost, Makes: died, Uses: UsesPlugin, Needs: ownStore,
		Lasts: Span{2 * time.Second, 6 * time.Second}, Stops: StopsHost, Recovers: 3 * time.Second, Inject: ofHost(killWaiter), Heal: end,
	},
	{
		Name: "kill-wrapper", Does: "the wrapper between %s and its plugin is killed", On: OnHost, Makes: died, Uses: UsesPlugin, Needs: ownStore, Wrapped: true,
		Recovers: time.Second, Inject: ofHost(func(_ *System, h *Host, e Event) error {
			chain := h.pluginChain()
			if len(chain) == 1 {
				return nil // the host is replacing its plugin
			}
			return kill(chain[int(e.Amount*float64(len(chain)-1))%(len(chain)-1)])
		}),
	},
	{
		Name: "reopen-client", Does: "%s closes its client and opens another", On: OnHost, Uses: UsesPlugin, Needs: ownStore, Stops: StopsHost, Recovers: 3 * time.Second,
		Inject: ofHost(func(_ *System, h *Host, e Event) error {
			return h.Reopen(100*time.Millisecond + time.Duration(e.Amount*float64(2*time.Second)))
		}),
	},
	{
		Name: "starve", Does: "%s and all others share their processors with busy loops", On: OnHost, Uses: UsesMachine, Lasts: Span{100 * time.Millisecond, 3 * time.Second},
		Inject: starve, Heal: end,
	},
}

var (
	stopped = []claim.Condition{claim.HostStopped}
	died    = []claim.Condition{claim.PluginDied}
)

// ownStore requires a store outside of the plugin's process. Actions that end a plugin need it.
var ownStore = []servers.Capability{servers.CapShared}

// ofHost(do) returns an Inject function that calls do for the event's host, unless it has ended.
func ofHost(do func(*System, *Host, Event) error) func(context.Context, *System, Event) error {
	return func(_ context.Context, w *System, e Event) error {
		h := w.Hosts[e.Target]
		if !h.Alive() {
			return nil
		}
		return do(w, h, e)
	}
}

// slow freezes processes for 20 ms and then lets them run for 10 ms, over and over, until the event
// e is healed. Each call of the pause function freezes the processes that exist at that time.
func (w *System) slow(e Event, pause func() (resume func() error, err error)) error {
	w.WhileRunning(e, func(ctx context.Context) error {
		resume, err := pause()
		proc.Sleep(ctx, 20*time.Millisecond)
		err = errors.Join(err, resume())
		proc.Sleep(ctx, 10*time.Millisecond)
		return err
	})
	return nil
}

// crashLoop kills three plugins of a host, each as soon as the host has reported the plugin's pid.
func crashLoop(w *System, h *Host, e Event) error {
	killed, last := 0, 0
	w.WhileRunning(e, func(ctx context.Context) error {
		if now := h.PluginPid(); now != last && killed < 3 {
			last = now
			killed++
			return kill(h.plugin())
		}
		proc.Sleep(ctx, time.Millisecond)
		return nil
	})
	return nil
}

func killWaiter(w *System, h *Host, e Event) error {
	w.WhileRunning(e, func(ctx context.Context) (err error) {
		pause := time.Millisecond
		if asking, _ := h.Asking(); asking && h.Alive() {
			err = kill(h.plugin())
			pause = time.Second
		}
		proc.Sleep(ctx, pause)
		return err
	})
	return nil
}

// busyLoop is a shell command that loads a processor. It ends after %d seconds of
// processor time, or when its parent process is gone.
const busyLoop = "ulimit -t %d; while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done"

// starve runs one to four busy loops for each processor.
func starve(_ context.Context, w *System, e Event) error {
	each := 1 + min(3, int(e.Amount*4))
	seconds := 1 + int(time.Duration(e.Lasts)/time.Second)
	for range each * runtime.NumCPU() {
		loop := exec.Command("/bin/sh", "-c", fmt.Sprintf(busyLoop, seconds))
		if err := loop.Start(); err != nil {
			return err
		}
		w.Begin(e, func() error {
			err := kill(loop.Process.Pid)
			_ = loop.Wait() // the error only says that the loop was killed
			return err
		})
	}
	return nil
}

// surroundingActions change the surroundings of a host's processes. No action fills the temporary
// directory. This would need a mount, which would remain if the search were killed.
var surroundingActions = []Action{
	surrounding("blocked-log", "the logger and OnEvent of %s block", host.BlockedLog),
	surrounding("reaper", "%s waits for every child that it has", host.Reaper),
	surrounding("ignored-children", "%s ignores the ends of its children", host.IgnoredChildren),
	{
		// The host cannot start a new plugin. UsesPlugin keeps other actions from ending the old one.
		Name: "few-descriptors", Does: "%s has few file descriptors left", On: OnHost, Uses: UsesPlugin, Unfit: noDescriptorLimit,
		Lasts:  Span{100 * time.Millisecond, 6 * time.Second},
		Inject: ofHost(func(w *System, h *Host, e Event) error { return w.fewDescriptors(e, h, 1+int(e.Amount*8)) }), Heal: end,
	},
	{
		Name: "no-descriptors", Does: "%s has no file descriptor left", On: OnHost, Uses: UsesDescriptors, Unfit: noDescriptorLimit,
		Lasts: Span{100 * time.Millisecond, 4 * time.Second}, Stops: StopsHost, Recovers: 2 * time.Second,
		Inject: ofHost(func(w *System, h *Host, e Event) error { return w.fewDescriptors(e, h, 0) }), Heal: end,
	},
	{
		// A cron job that deletes old directories has this effect. The host cannot replace its plugin.
		Name: "lost-directory", Does: "the temporary directory of %s is gone", On: OnHost, Uses: UsesDirectory,
		Lasts: Span{100 * time.Millisecond, 4 * time.Second}, Stops: StopsHost, Recovers: 2 * time.Second,
		Inject: ofHost(loseDirectory), Heal: end,
	},
}

// surrounding returns an action that should be harmless: a host changes its own surroundings.
func surrounding(name, does string, s host.Surrounding) Action {
	return Action{
		Name: name, Does: does, On: OnHost, Uses: Resource(name), Lasts: Span{100 * time.Millisecond, 6 * time.Second}, Heal: end,
		Inject: ofHost(func(w *System, h *Host, e Event) error {
			w.Begin(e, func() error { return unlessEnded(h, h.Surround(s, false)) })
			return unlessEnded(h, h.Surround(s, true))
		}),
	}
}

// unlessEnded returns err, the error of an action on the host h. It returns nil if h has ended.
func unlessEnded(h *Host, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-h.Ended(): // the host has ended, which may explain the error
		return nil
	case <-time.After(time.Second):
		return err
	}
}

func loseDirectory(w *System, h *Host, e Event) error {
	away := fmt.Sprint(h.Dir, ".away")
	if err := os.Rename(h.Dir, away); err != nil {
		return err
	}
	w.Begin(e, func() error { return os.Rename(away, h.Dir) })
	return nil
}

func (w *System) fewDescriptors(e Event, h *Host, spare int) error {
	restore, err := limitDescriptors(h.Pid(), spare)
	if err != nil {
		return unlessEnded(h, err)
	}
	w.Begin(e, func() error {
		if !h.Alive() {
			return nil
		}
		return unlessEnded(h, restore())
	})
	return nil
}

const StressDoes = "two busy loops for each processor, and 4 MB written and flushed to the disk over and over"

// stressed is the time limit of the load. It is longer than any measurement.
const stressed = 24 * time.Hour

// Stress loads the processors, as the action "starve" does, and the disk that throwaway servers
// use. The load ends when the caller calls the function end, or when this process ends. Stress
// returns an end function even if it returns an error.
func Stress(ctx context.Context) (end func() error, err error) {
	w := &System{Environment: &servers.Environment{}}
	e := Event{Action: "starve", Lasts: Duration(stressed), Amount: 0.25}
	scratch, err := servers.NewScratch()
	if err != nil {
		return w.EndBackground, err
	}
	w.Begin(e, scratch.Close)
	return w.EndBackground, errors.Join(w.Inject(ctx, e), w.busyDisk(e, scratch.Dir()))
}

// These are the sizes of the file and of the blocks that busyDisk writes, in bytes.
const (
	diskBlock = 4 << 20
	diskFile  = 64 << 20
)

// busyDisk writes blocks of a file in the directory dir, over and over, and flushes each block.
// Searches have no such action, because servers that flush each commit would wait too long.
func (w *System) busyDisk(e Event, dir string) error {
	f, err := os.CreateTemp(dir, "busy-")
	if err != nil {
		return err
	}
	block, at := make([]byte, diskBlock), int64(0)
	w.WhileRunning(e, func(context.Context) error {
		_, err := f.WriteAt(block, at)
		if err = errors.Join(err, f.Sync()); err != nil {
			err = fmt.Errorf("faults: stress of the disk: %w", err)
		}
		at = (at + diskBlock) % diskFile
		return err
	})
	w.Begin(e, f.Close)
	return nil
}
