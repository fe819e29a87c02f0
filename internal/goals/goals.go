package goals

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/record"
)

// Goal is one ratio or bound to reach.
type Goal struct {
	ID   string // "P2/64"
	What string // one line, for people
	// Limit is in Unit: "" for a ratio.
	Limit   float64
	Unit    string
	AtLeast bool // else Limit is the most
	figure  figure
}

// backends are those that are judged, in the order in which they are shown.
var backends = []string{"redis", "redlock", "mysql", "etcd"}

// Units of results.txt.
const (
	cycles  = "cycles/s"
	p50     = "p50-ns/acquire"
	handoff = "p50-ns/handoff"
)

const (
	microsecond = float64(time.Microsecond)
	millisecond = float64(time.Millisecond)
	kibibyte    = float64(1 << 10)
	megabyte    = 1e6
)

// Goals are P1 to P11 with their parts.
func Goals() []Goal {
	return slices.Concat(speed(), each(handoffs), each(across), each(killed), each(lost), held(), each(idle))
}

// each are goals of every backend, one backend after the other.
func each(of func(backend string) []Goal) []Goal {
	var out []Goal
	for _, b := range backends {
		out = append(out, of(b)...)
	}
	return out
}

// acquiring is a cell of scenario acquire.
func acquiring(backend string, clients int) cell {
	return cell{scenario: "acquire", backend: backend, clients: clients}
}

// speed are P1 to P5: the fast path against the libraries.
func speed() []Goal {
	against := func(id, subject, baseline string, clients int, limit float64) Goal {
		callers := "1 client"
		if clients > 1 {
			callers = fmt.Sprintf("%d clients", clients)
		}
		own, tokens := acquiring(subject, clients), ""
		if subject == "redlock" {
			own.fencing, tokens = "quorum", ", with tokens of a quorum"
		}
		g := price(fmt.Sprintf("%s / %s, %s", subject, baseline, callers), own, acquiring(baseline, clients))
		g.ID, g.What, g.Limit, g.AtLeast = id, g.What+tokens, limit, clients > 1
		return g
	}
	return []Goal{
		against("P1", "redis", "redislock", 1, 1.3),
		against("P2/8", "redis", "redislock", 8, 0.9),
		against("P2/64", "redis", "redislock", 64, 1.8),
		against("P2/256", "redis", "redislock", 256, 2.6),
		against("P2/64-rueidislock", "redis", "rueidislock", 64, 1.2),
		against("P2/256-rueidislock", "redis", "rueidislock", 256, 1.7),
		against("P2/64-pipelined", "redis", "go-redis-pipelined", 64, 0.7),
		against("P2/256-pipelined", "redis", "go-redis-pipelined", 256, 0.7),
		against("P3/64", "redlock", "redsync-nodes", 64, 5),
		against("P3/256", "redlock", "redsync-nodes", 256, 6),
		against("P3/p50", "redlock", "redsync-nodes", 1, 1.2),
		against("P4/64", "etcd", "etcdmutex", 64, 2.5),
		against("P4/256", "etcd", "etcdmutex", 256, 3),
		against("P4/p50", "etcd", "etcdmutex", 1, 1.1),
		against("P5/p50", "mysql", "lease-row", 1, 1.4),
		against("P5/8", "mysql", "lease-row", 8, 0.9),
		against("P5/64", "mysql", "lease-row", 64, 2),
		against("P5/256", "mysql", "lease-row", 256, 3),
	}
}

// handoffs are P6: 32 waiters in one host, without any work and with 5 ms of it.
func handoffs(backend string) []Goal {
	c := cell{scenario: "contend", backend: backend, mode: "forced", clients: 32}
	worked := c
	worked.hold = true
	return []Goal{
		{ID: "P6/" + backend, What: backend + ": handoff p50, 32 waiters in one host that do no work", Limit: 0.02, Unit: "ms", figure: median(c, handoff, millisecond)},
		{ID: "P6/" + backend + "/worked", What: backend + ": handoff p50, 32 waiters in one host, 5 ms of work", Limit: 0.1, Unit: "ms", figure: median(worked, handoff, millisecond)},
		{ID: "P6/" + backend + "/jain", What: backend + ": Jain fairness of the same", Limit: 0.98, AtLeast: true, figure: median(worked, "jain", 1)},
	}
}

// across are P7: 2 and 32 waiters in as many hosts, 5 ms of work.
func across(backend string) []Goal {
	limit := map[string]float64{"redis": 0.5, "redlock": 1.5, "mysql": 1, "etcd": 2}[backend]
	commands := map[string]float64{"redis": 4, "redlock": 4, "mysql": 4, "etcd": 6}[backend]
	var out []Goal
	for _, hosts := range []int{2, 32} {
		c := cell{scenario: "contend", backend: backend, mode: "forced", hosts: hosts, clients: 1, hold: true}
		id := fmt.Sprintf("P7/%s/%d", backend, hosts)
		out = append(out,
			Goal{ID: id, What: fmt.Sprintf("%s: handoff p50, %d waiters in as many hosts", backend, hosts), Limit: limit, Unit: "ms", figure: median(c, handoff, millisecond)},
			Goal{ID: id + "/jain", What: backend + ": Jain fairness of the same", Limit: 0.95, AtLeast: true, figure: median(c, "jain", 1)},
			Goal{ID: id + "/wait", What: backend + ": the longest wait of the same, by the median wait", Limit: 3, figure: paired(c, "max-ns/wait", "p50-ns/wait", func(longest, usual float64) float64 { return longest / usual })},
			Goal{ID: id + "/commands", What: backend + ": commands that clients send for a grant to each node", Limit: commands, figure: median(c, "sent-commands/grant", 1)},
		)
		if backend == "redis" {
			out = append(out,
				Goal{ID: id + "/scripted", What: "redis: commands that scripts run for a grant", Limit: 15, figure: paired(c, "commands/grant", "sent-commands/grant", func(run, sent float64) float64 { return run - sent })},
				Goal{ID: id + "/server", What: "redis: time of the server for a grant", Limit: 150, Unit: "us", figure: median(c, "server-ns/grant", microsecond)},
			)
		}
	}
	return out
}

// killed is P8: the end of a leader whose plugin releases.
func killed(backend string) []Goal {
	c := cell{scenario: "takeover", backend: backend, mode: "kill-host", hosts: -1}
	return []Goal{{
		ID: "P8/" + backend, What: backend + ": takeover after SIGKILL of the leading host; p99, in brackets p50 and the longest",
		Limit: 50, Unit: "ms", figure: p99(c, "takeover", nothing),
	}}
}

// lost is P9: the end of a leader for whom nobody releases.
func lost(backend string) []Goal {
	c := cell{scenario: "takeover", backend: backend, mode: "kill-machine", hosts: -1}
	return []Goal{{
		ID: "P9/" + backend, What: backend + ": takeover after the machine is lost, beyond the TTL left and one round trip (etcd: and its expiry step); p99, in brackets p50 and the longest",
		Limit: 50, Unit: "ms", figure: p99(c, "overdue", roundTrip(c, 50*time.Millisecond)),
	}}
}

// held are P10: leases that are held.
func held() []Goal {
	held := cell{scenario: "footprint", backend: "redis", hold: true}
	return []Goal{
		{ID: "P10/cpu", What: "redis, 10,000 held leases, TTL 10 s: processor time of host and plugin, of one core", Limit: 1.2, Unit: "%", figure: median(held, "renewal-cpu-%", 1)},
		{ID: "P10/memory", What: "redis, the same: memory of the host for a lease", Limit: 2, Unit: "KiB", figure: median(held, "host-bytes/lease", kibibyte)},
		{ID: "P10/losses", What: "redis, the same: leases lost although nothing happened; in brackets the fewest and the most of a run", Limit: 0, figure: worst(held, "lost-leases")},
	}
}

// idle are P11: a plugin that was just started.
func idle(backend string) []Goal {
	c := cell{scenario: "footprint", backend: backend}
	return []Goal{
		{ID: "P11/" + backend + "/start", What: backend + ": plugin start to first grant, p50, with mutual TLS", Limit: 60, Unit: "ms", figure: median(c, "p50-ns/first-grant", millisecond)},
		{ID: "P11/" + backend + "/rss", What: backend + ": memory of the idle plugin", Limit: 25, Unit: "MB", figure: median(c, "idle-bytes/plugin", megabyte)},
	}
}

// floor is measured beside scenario acquire, whatever the plan has.
const floor = "floor"

// Prices are shown and not judged: what the process costs, alone and by the same
// library without it, and what mutual TLS does. Their limits mean nothing.
func Prices() []Goal {
	clients := map[string][]int{"redis": {1, 8, 64, 256}, "redlock": {1, 64, 256}, "mysql": {1, 8, 64, 256}, "etcd": {1, 64, 256}}
	nothing := cell{scenario: floor, backend: "plugin-call", clients: 1}
	out := []Goal{{What: "a call through a plugin that does nothing, clients=1: p50", Unit: "us", figure: median(nothing, "p50-ns/call", microsecond)}}
	for _, b := range backends {
		for _, n := range clients[b] {
			out = append(out, price(fmt.Sprintf("%s through its process / in process, clients=%d", b, n), acquiring(b, n), acquiring(b+"-in-process", n)))
		}
	}
	for _, n := range []int{1, 64} {
		plain, library := acquiring("redis", n), acquiring("redislock", n)
		plain.noMTLS, library.noMTLS = true, true
		out = append(out, price(fmt.Sprintf("redis without mutual TLS / redislock, clients=%d", n), plain, library))
	}
	return out
}

// Noise is shown and not judged: each plugin by a second copy of itself, which
// would be 1 if nothing but the plugin decided. Its limits mean nothing.
func Noise() []Goal {
	return each(func(b string) (out []Goal) {
		for _, n := range []int{1, 64} {
			out = append(out, price(fmt.Sprintf("%s / the same again, clients=%d", b, n), acquiring(b, n), acquiring(b+record.OtherBuild, n)))
		}
		return out
	})
}

// price compares latencies of one caller, and throughput of several.
func price(what string, subject, baseline cell) Goal {
	if subject.clients == 1 {
		return Goal{What: what + ": acquire p50", figure: ratio(subject, baseline, p50)}
	}
	return Goal{What: what + ": cycles/s", figure: ratio(subject, baseline, cycles)}
}
