package faults

import (
	"fmt"
	"os"
	"time"

	"github.com/lockbench/lockbench/internal/host"
)

// surroundingActions are what surrounds the processes of a host.
//
// Note: a temporary directory that is full would be a file system of its own,
// mounted over that of the host. It would stay when the search is killed, and
// hosts see no difference to a directory that is not there.
var surroundingActions = []Action{
	surrounding("blocked-log", "the logger and OnEvent of %s block", host.BlockedLog),
	surrounding("reaper", "%s waits for every child that it has", host.Reaper),
	surrounding("ignored-children", "%s ignores the ends of its children", host.IgnoredChildren),
	{
		// No other plugin can be started, so that the one that there is must live.
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
		// As of a cleaner of old files. A plugin that ends is missing until then.
		Name: "lost-directory", Does: "the temporary directory of %s is gone", On: OnHost, Uses: UsesDirectory,
		Lasts: Span{100 * time.Millisecond, 4 * time.Second}, Stops: StopsHost, Recovers: 2 * time.Second,
		Inject: ofHost(loseDirectory), Heal: end,
	},
}

// surrounding is an action that a host does to itself, and that is no harm.
func surrounding(name, does string, s host.Surrounding) Action {
	return Action{
		Name: name, Does: does, On: OnHost, Uses: Resource(name), Lasts: Span{100 * time.Millisecond, 6 * time.Second}, Heal: end,
		Inject: ofHost(func(w *System, h *Host, e Event) error {
			w.Begin(e, func() error { return unlessEnded(h, h.Surround(s, false)) })
			return unlessEnded(h, h.Surround(s, true))
		}),
	}
}

// unlessEnded is the error of what was done to a host that has not ended.
func unlessEnded(h *Host, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-h.Ended(): // it may be ending
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
