package faults

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// The actions of schedules that are written by hand, of which none does harm.
const (
	Ask      = "ask"
	GiveBack = "give-back"
	Wait     = "wait"
)

// tableActions are known, and not drawn.
var tableActions = []Action{
	{Name: Ask, Does: "%s asks for its locks", On: OnHost, Inject: ofHost((*System).ask)},
	{Name: GiveBack, Does: "%s gives its locks back", On: OnHost, Inject: ofHost((*System).giveBack)},
	{Name: Wait, Does: "time passes", On: OnStore, Inject: func(context.Context, *System, Event) error { return nil }},
	{
		Name: "sever-replica", Does: "the replica receives nothing from the master", On: OnStore,
		Inject: func(_ context.Context, w *System, _ Event) error { return w.Link.BlackHole() },
		Heal:   func(_ context.Context, w *System, _ Event) error { return w.Link.Heal() },
	},
	{
		Name: "take-over", Does: "the master dies, the replica takes over, and host A learns of it after all others", On: OnStore,
		Inject: takeOver,
	},
	{
		Name: "sentinel-failover", Does: "Sentinel lets a replica take over, in order", On: OnStore,
		Inject: turn(servers.CapSentinel, true),
	},
	demotion("demotion", "the replica is promoted and the master made its replica, to which hosts are led until the end", (*inject.Proxy).Retarget),
	demotion("demotion-uncut", "the same, and no connection is cut when hosts are led to the new master", (*inject.Proxy).Lead),
	{
		Name: "evict", Does: "the servers are told to evict keys, and are full 3 s later", On: OnStore, Heal: turn(servers.CapEvict, false),
		Inject: func(ctx context.Context, w *System, e Event) error {
			err := w.Make(ctx, servers.CapEvict, true)
			w.Later(e, noticedBy, func() error { return w.Make(ctx, servers.CapFull, true) })
			return err
		},
	},
	{
		Name: "evict-at-once", Does: "the servers are full, and evict keys", On: OnStore, Heal: turn(servers.CapEvict, false),
		Inject: func(ctx context.Context, w *System, _ Event) error {
			return errors.Join(w.Make(ctx, servers.CapEvict, true), w.Make(ctx, servers.CapFull, true))
		},
	},
}

// turn makes the change that a capability of the servers is, or takes it back.
func turn(c servers.Capability, on bool) func(context.Context, *System, Event) error {
	return func(ctx context.Context, w *System, _ Event) error { return w.Make(ctx, c, on) }
}

// noticedBy is how long a host may take to notice that a server evicts keys.
const noticedBy = 3 * time.Second

// learnsLater is how much later than its rival the holder learns of a new
// master. Clients learn of one at different times, by a second and more.
const learnsLater = 500 * time.Millisecond

func takeOver(ctx context.Context, w *System, e Event) error {
	err := w.TakeOver(ctx, func(to ...string) error {
		return inject.Each(w.Hosts[1:], func(h *Host) error { return h.Paths[0].Retarget(to...) })
	})
	if err != nil {
		return err
	}
	w.Later(e, learnsLater, func() error { return w.Hosts[0].Paths[0].Retarget(w.Replica.Addr()) })
	return nil
}

// demotion swaps the roles of two servers. In the end it leads hosts to the master.
func demotion(name, does string, by inject.Leading) Action {
	return Action{
		Name: name, Does: does, On: OnStore,
		Inject: func(ctx context.Context, w *System, _ Event) error {
			return errors.Join(w.Replica.Promote(ctx), w.Replica.Lead(ctx, w.Servers[0].Addr()))
		},
		Heal: func(_ context.Context, w *System, _ Event) error { return w.Lead(0, by, w.Replica.Addr()) },
	}
}

// ask has a host ask for every lock of the groups that ask once.
func (w *System) ask(h *Host, e Event) error {
	first, count := w.history.once(e.Group)
	h.askedAt.Store(proc.Now())
	h.asked.Store(int64(count))
	return h.Acquire(w.history.prefix, first, count, time.Duration(w.history.Schedule.Groups[max(0, e.Group-1)].TTL), time.Duration(e.Limit))
}

func (w *System) giveBack(h *Host, e Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
	defer cancel()
	first, _ := w.history.once(e.Group)
	return h.ReleaseFrom(ctx, first)
}
