package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Fault is one named fault of the table. One host (the holder) gets half of its locks before the
// Prepare events, and the rest between Prepare and Events. Another host (the rival) wants them all.
type Fault struct {
	Name string
	Does string // one line
	// Prepare and Events happen to the hosts and the servers. In the name of an action, a leading star
	// stands for the name of the backend. Events whose action does not exist for the backend are left
	// out. An event in Prepare without Lasts ends by the same rule as the fault; see ActsTTLs.
	Prepare, Events []Event
	// Needs are capabilities. The fault is run only on servers that have all of them.
	Needs []servers.Capability
	// OnlyFor, if not "", is a capability. The fault concerns only stores that have it.
	OnlyFor servers.Capability
	// Config is added to the configuration of the backend.
	Config map[string]string
	// Control reports whether Config turns a safeguard off, so that the fault should break a claim.
	Control bool
	// TTL is the TTL of the leases. Zero means the table's [TTL].
	TTL time.Duration
	// KeepsLeases reports whether all leases should survive the fault.
	KeepsLeases bool
	// Restores, if not "", is the moment from which the store must again grant free locks promptly
	// (claim Woken). To check this, the holder releases half of its locks in the outage.
	Restores Moment
	// SeveralServers reports whether the fault runs on several servers, if the backend can use either
	// one server or several.
	SeveralServers bool
	// Produces are conditions that the fault causes. They may make documented exceptions apply.
	Produces []claim.Condition
	// RivalAsksLate reports whether the rival asks for the locks only after the fault was injected.
	RivalAsksLate bool
	// OnWaiter reports whether the fault happens to a third host, which is ahead of the rival in the
	// queues. When the holder releases the locks, the rival must get them promptly. Half of the locks
	// have an AtLeast (see [Group]), and half are elections whose leaders publish a long value.
	OnWaiter bool
	// Acts, or ActsTTLs times the TTL if that is longer, is the longest time that the fault lasts. If
	// both fields are zero, the limit is the TTL plus 20 s. The fault ends earlier if the rival has
	// every lock.
	ActsTTLs float64
	Acts     time.Duration
}

func (f Fault) Concerns(k *servers.Kind) bool { return f.OnlyFor == "" || k.Has(f.OnlyFor) }

// Fits returns the reason why the fault cannot be run on the store k, or "" if it can be run.
func (f Fault) Fits(k *servers.Kind) string {
	if !f.Concerns(k) {
		var names []string
		for _, other := range kinds.All() {
			if f.Concerns(other) {
				names = append(names, other.Name)
			}
		}
		return fmt.Sprintf("it is made for %v", names)
	}
	for _, need := range f.Needs {
		if why := k.Lacks[need]; why != "" {
			return why
		}
	}
	if k.Known() && len(known(k, f.setting(k), f.Events)) == 0 {
		return "lockbench does not know how, of this store"
	}
	return ""
}

// DoesAction reports whether the fault uses the action with this name on at least one store.
func (f Fault) DoesAction(name string) bool {
	return slices.ContainsFunc(slices.Concat(f.Prepare, f.Events), func(e Event) bool {
		of, everyStore := strings.CutPrefix(e.Action, "*")
		return e.Action == name || everyStore && strings.HasSuffix(name, of)
	})
}

func (f Fault) setting(k *servers.Kind) string {
	is := func(s servers.Setting) bool { return true }
	switch {
	case slices.Contains(f.Needs, servers.CapReplica):
		return servers.WithReplica
	case slices.Contains(f.Needs, servers.CapSlots):
		is = func(s servers.Setting) bool { return s.Sharded }
	case f.SeveralServers && k.Has(servers.CapLeader):
		is = func(s servers.Setting) bool { return s.Elects }
	}
	return k.Settings[slices.IndexFunc(k.Settings, is)].Name
}

// known() returns those events whose actions exist in the setting of the store k.
func known(k *servers.Kind, setting string, events []Event) []Event {
	var all []Event
	for _, e := range events {
		if of, everyStore := strings.CutPrefix(e.Action, "*"); everyStore {
			e.Action = k.Name + of
		}
		if a := e.action(); a.Name != "" && a.knownIn(k, setting) {
			all = append(all, e)
		}
	}
	return all
}

const (
	// longTTL is the TTL for faults in which leases with the table's [TTL] would end too early.
	longTTL = 10 * time.Second
	// untilRenewed is long enough that each lease with TTL longTTL is renewed at least once.
	untilRenewed = longTTL / 2
)

var (
	sharedStore = []servers.Capability{servers.CapShared}
	ourServers  = []servers.Capability{servers.CapServers}
	theClock    = []servers.Capability{servers.CapClock}
	aReplica    = []servers.Capability{servers.CapReplica}
)

// reachMajority leaves the holder only its paths to the smallest majority of the servers. This
// majority includes the first server.
var (
	reachMajority = []Event{{Action: "black-hole", Share: Minority}}
	wipe          = []Event{{Action: "wipe-servers", AtOnce: true}, {Action: "wipe-node", AtOnce: true}}
	anHourAhead   = []Event{{Action: "clock-forward", Amount: 1}}
	loseLink      = []Event{{Action: "*-sever"}}
)

// All returns the faults of the table, in the order of the report.
func All() []Fault {
	return []Fault{
		{
			Name: "freeze-host", Does: "the holder is frozen until another host has its locks, then goes on",
			Produces: []claim.Condition{claim.HostStopped},
			Events:   []Event{{Action: "freeze-host"}}, Needs: sharedStore,
		},
		{
			Name: "freeze-waiter", Does: "the first host that waits is frozen, its plugin is not, and the holder gives its locks back; TTL 10 s", TTL: longTTL, OnWaiter: true,
			Produces: []claim.Condition{claim.HostStopped}, RivalAsksLate: true,
			Events: []Event{{Action: "freeze-host", Target: waiterHost}}, Needs: sharedStore,
		},
		{
			Name: "freeze-plugin", Does: "the holder's plugin process is frozen", KeepsLeases: true, ActsTTLs: 1.5,
			Produces: []claim.Condition{claim.PluginDied},
			Events:   []Event{{Action: "freeze-plugin"}},
		},
		{
			Name: "kill-host", Does: "the holder is killed, its plugin is not",
			Events: []Event{{Action: "kill-host"}}, Needs: sharedStore,
		},
		{
			Name: "kill-plugin", Does: "the holder's plugin process is killed", KeepsLeases: true, ActsTTLs: 1.5,
			Produces: []claim.Condition{claim.PluginDied},
			Events:   []Event{{Action: "kill-plugin"}},
		},
		{
			Name: "kill-both", Does: "the holder and its plugin are killed",
			Produces: []claim.Condition{claim.PluginDied},
			Events:   []Event{{Action: "kill-both"}}, Needs: sharedStore,
		},
		// To hosts, a frozen server looks like a server that no host can reach: its connections stay
		// open, but no answer comes. So faults that freeze servers also cover unreachable servers.
		{
			Name: "partition-holder", Does: "nothing passes between the holder and any server, and no connection ends",
			Events: []Event{{Action: "black-hole"}}, Needs: ourServers,
		},
		{
			Name: "partition-minority", Does: "a minority of the servers is cut off for 5 s; TTL 10 s", TTL: longTTL, KeepsLeases: true, Acts: 5 * time.Second, SeveralServers: true,
			Events: []Event{{Action: "freeze-servers", Share: Minority}, {Action: "freeze-members", Share: Minority}},
			Needs:  []servers.Capability{servers.CapMinority},
		},
		{
			Name: "pause-leader", Does: "the server that leads is frozen for longer than the TTL of 10 s, and goes on", TTL: longTTL, Acts: longTTL + 1500*time.Millisecond, SeveralServers: true,
			Produces: []claim.Condition{claim.LeaderPaused},
			Events:   []Event{{Action: "freeze-leader"}},
			Needs:    []servers.Capability{servers.CapMinority, servers.CapLeader},
		},
		{
			Name: "partition-majority", Does: "a majority of the servers, or the only one, is cut off", ActsTTLs: 1.5, SeveralServers: true,
			Events: []Event{{Action: "freeze-servers", Share: Majority}, {Action: "freeze-members", Share: Majority}}, Needs: ourServers,
		},
		{
			Name: "black-hole", Does: "nothing passes between any host and any server for 2 s; TTL 10 s", TTL: longTTL, KeepsLeases: true, Acts: 2 * time.Second,
			Events: []Event{{Action: "black-hole", Target: everywhere}}, Needs: ourServers,
		},
		{
			Name: "reset", Does: "1 % of the requests and answers end in a reset of their connection; TTL 10 s", TTL: longTTL, KeepsLeases: true, ActsTTLs: 1,
			Events: []Event{{Action: "resets", Target: everywhere, Amount: 0.444}}, Needs: ourServers,
		},
		{
			Name: "latency", Does: "every answer comes up to 60 ms late", KeepsLeases: true, ActsTTLs: 1.5,
			Events: []Event{{Action: "jitter", Target: everywhere, Amount: 1}}, Needs: ourServers,
		},
		{
			Name: "fragment", Does: "data come in pieces of 256 bytes, 200 µs apart", KeepsLeases: true, ActsTTLs: 1.5,
			Events: []Event{{Action: "fragment", Target: everywhere}}, Needs: ourServers,
		},
		{
			Name: "lost-reply", Does: "half of the holder's acquires reach the servers, the answers do not reach the holder; TTL 10 s", TTL: longTTL, KeepsLeases: true, Acts: 2 * time.Second,
			Prepare: []Event{{Action: "lose-replies", Lasts: Duration(tryFor + queueing)}}, Events: []Event{{Action: Wait}}, Needs: ourServers,
		},
		{
			Name: "restart", Does: "every server crashes and starts again with its data", ActsTTLs: 1.5,
			Produces: []claim.Condition{claim.Restarted},
			Events:   []Event{{Action: "crash-servers", AtOnce: true}, {Action: "crash-nodes", AtOnce: true}},
			Needs:    []servers.Capability{servers.CapKeeps},
		},
		{
			Name: "restart-wiped", Does: "the server crashes and starts again without its data; of several nodes, one of the three that the holder had reached",
			Produces: []claim.Condition{claim.DataLost}, RivalAsksLate: true, ActsTTLs: 1.5,
			Prepare: reachMajority, Events: wipe, Needs: ourServers,
		},
		{
			Name: "restart-wiped-open", Does: "as restart-wiped, with the quarantine of restarted nodes switched off",
			Produces: []claim.Condition{claim.DataLost, claim.QuarantineOff}, RivalAsksLate: true, ActsTTLs: 1.5,
			OnlyFor: servers.CapVotes, Config: map[string]string{"quarantine": "off"}, Control: true,
			Prepare: reachMajority, Events: wipe, Needs: ourServers,
		},
		// The replica that takes over has not received the last writes, which granted half of the locks.
		{
			Name: "failover", Does: "the master dies; a replica that did not receive half of the grants takes over, and the holder learns of it 500 ms after its rival",
			Produces: []claim.Condition{claim.ReplicaPromoted}, RivalAsksLate: true, ActsTTLs: 1.5,
			Prepare: loseLink, Events: []Event{{Action: "*-take-over"}}, Needs: aReplica,
		},
		{
			Name: "failover-wait", Does: "as failover, with grants that wait for the replica (wait_replicas=1); TTL 10 s", TTL: longTTL, KeepsLeases: true,
			Produces: []claim.Condition{claim.ReplicaPromoted, claim.ReplicasWaited}, Restores: Injected, RivalAsksLate: true, Acts: untilRenewed,
			OnlyFor: servers.CapReplica, Config: map[string]string{"wait_replicas": "1"},
			Prepare: loseLink, Events: []Event{{Action: "*-take-over"}}, Needs: aReplica,
		},
		{
			Name: "failover-planned", Does: "Sentinel lets one of two replicas take over, in order, with wait_replicas=1; TTL 10 s", TTL: longTTL, KeepsLeases: true,
			Produces: []claim.Condition{claim.ReplicaPromoted, claim.ReplicasWaited}, Restores: Injected, Acts: untilRenewed,
			OnlyFor: servers.CapSentinel, Config: map[string]string{"wait_replicas": "1"},
			Events: []Event{{Action: "*-sentinel"}}, Needs: []servers.Capability{servers.CapSentinel},
		},
		{
			Name: "demotion", Does: "a replica is promoted and the master made its replica, to which the address leads for another 1.5 s; TTL 10 s", TTL: longTTL, KeepsLeases: true,
			Restores: Healed, Acts: 1500 * time.Millisecond,
			Events: []Event{{Action: "*-demotion"}}, Needs: aReplica,
		},
		{
			Name: "demotion-uncut", Does: "as demotion, and what leads hosts elsewhere cuts no connection: those that there are stay at the old master", TTL: longTTL, KeepsLeases: true,
			Restores: Healed, Acts: 1500 * time.Millisecond,
			Events: []Event{{Action: "*-demotion-uncut"}}, Needs: aReplica,
		},
		{
			Name: "slot-move", Does: "the slots of all locks are moved to other nodes, half of their keys first, the rest 12 s later; TTL 10 s", TTL: longTTL, KeepsLeases: true,
			Produces: []claim.Condition{claim.SlotMoving}, Restores: Healed, ActsTTLs: 1.2,
			OnlyFor: servers.CapSlots, Events: []Event{{Action: "*-slots"}}, Needs: []servers.Capability{servers.CapSlots},
		},
		{
			Name: "clock-forward", Does: "the server's clock jumps an hour ahead; of several nodes, that of one of the three that the holder had reached",
			Produces: []claim.Condition{claim.ClockForward}, RivalAsksLate: true, ActsTTLs: 1.5,
			Prepare: reachMajority, Events: anHourAhead, Needs: theClock,
		},
		{
			// The clock stays wrong, because setting it right would be a jump ahead, as in clock-forward.
			Name: "clock-back", Does: "the server's clock jumps an hour back and stays there; of several nodes, that of one of the three that the holder had reached",
			Produces: []claim.Condition{claim.ClockBack}, RivalAsksLate: true, ActsTTLs: 1.5,
			Prepare: reachMajority, Events: []Event{{Action: "clock-back", Amount: 1}}, Needs: theClock,
		},
		{
			Name: "read-only", Does: "the servers refuse writes, as with a full disk", ActsTTLs: 1.5,
			Events: []Event{{Action: "*-read-only", Target: everywhere}, {Action: "*-no-space"}},
			Needs:  ourServers,
		},
		{
			Name: "pool-exhausted", Does: "the servers end all connections and take no new ones", ActsTTLs: 1.5,
			Events: []Event{{Action: "*-maxclients", Target: everywhere}, {Action: "*-user-connections"}},
			Needs:  []servers.Capability{servers.CapExhaust},
		},
		{
			Name: "slow-server", Does: "the servers get a third of the time", KeepsLeases: true, ActsTTLs: 1.5,
			Events: []Event{{Action: "slow-servers"}}, Needs: ourServers,
		},
		{
			Name: "evict", Does: "the servers are told to evict keys when their memory is full, which it is 3 s later; TTL 10 s", TTL: longTTL, Acts: 3*time.Second + longTTL/2,
			Produces: []claim.Condition{claim.EvictionSeen},
			OnlyFor:  servers.CapEvict, Events: []Event{{Action: "*-fill-later"}}, Needs: []servers.Capability{servers.CapEvict},
		},
		{
			Name: "evict-at-once", Does: "as evict, and their memory is full already", TTL: longTTL, Acts: 3*time.Second + longTTL/2,
			Produces: []claim.Condition{claim.Evicting},
			OnlyFor:  servers.CapEvict, Events: []Event{{Action: "*-fill"}}, Needs: []servers.Capability{servers.CapEvict},
		},
	}
}

// These actions do no harm. They are for the table of faults and for schedules written by hand.
const (
	Ask      = "ask"
	GiveBack = "give-back"
	Wait     = "wait"
)

// tableActions are actions that schedules can contain, but that a search never draws.
var tableActions = []Action{
	{Name: Ask, Does: "%s asks for its locks", On: OnHost, Inject: ofHost((*System).ask)},
	{Name: GiveBack, Does: "%s gives its locks back", On: OnHost, Inject: ofHost((*System).giveBack)},
	{Name: Wait, Does: "time passes", On: OnStore, Inject: func(context.Context, *System, Event) error { return nil }},
}

// allTableActions returns all actions that a search never draws: the [tableActions], and operations
// that a store lists as Staged. Staged operations may overlap in time.
var allTableActions = sync.OnceValue(func() []Action {
	all := operations(func(k *servers.Kind) []servers.Operation { return k.Staged })
	for i := range all {
		all[i].Uses = ""
	}
	return append(all, tableActions...)
})

func (w *System) ask(h *Host, e Event) error {
	_, count := w.history.once(e.Group)
	h.askedAt.Store(proc.Now())
	h.asked.Store(int64(count))
	for i := range w.history.Schedule.Groups {
		if e.Group > 0 && e.Group != i+1 {
			continue
		}
		if err := h.Acquire(w.history.workload(i), time.Duration(e.Limit)); err != nil {
			return err
		}
	}
	return nil
}

func (w *System) giveBack(h *Host, e Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
	defer cancel()
	first, _ := w.history.once(e.Group)
	return h.ReleaseFrom(ctx, first)
}
