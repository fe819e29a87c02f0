package results

import (
	"slices"
	"strings"
)

// Unit describes a unit of results.txt. Units of times, such as "p90-ns/wait", need no description.
type Unit struct {
	Name     string // as in results.txt, for example "cycles/s"
	Title    string // title of its column; "" for none
	Interval bool   // shown with its confidence interval, like the first figure of each operation
	Better   string // "lower", "higher", or "" for neither; for a time, lower is always better
	Added    bool   // figures of runs that measure together (parts) are summed
	Tested   bool
}

// Units has all units in the order of the report, except times that have no column there.
var Units = []Unit{
	{Name: "p50-ns/acquire", Title: "acquire p50", Interval: true},
	{Name: "p99-ns/acquire", Title: "p99"},
	{Name: "p99.9-ns/acquire", Title: "p99.9"},
	{Name: "max-ns/acquire", Title: "worst"},
	{Name: "p50-ns/open-acquire", Title: "open p50"},
	{Name: "p99-ns/open-acquire", Title: "open p99"},
	{Name: "max-ns/open-acquire", Title: "open max"},
	{Name: "offered/s", Added: true},
	{Name: "drops", Better: "lower", Added: true},
	{Name: "open-refused", Added: true},
	{Name: "p50-ns/renew", Title: "renew p50"},
	{Name: "p50-ns/release", Title: "release p50"},
	{Name: "cycles/s", Title: "cycles/s", Interval: true, Better: "higher", Added: true, Tested: true},
	{Name: "p50-ns/handoff", Title: "hand-over p50", Interval: true},
	{Name: "p99-ns/handoff", Title: "p99"},
	{Name: "max-ns/wait", Title: "longest wait (max)"},
	{Name: "jain", Title: "Jain fairness", Better: "higher"},
	{Name: "grants/s", Title: "grants/s", Interval: true, Better: "higher", Added: true, Tested: true},
	{Name: "commands/grant", Title: "commands/grant", Better: "lower", Tested: true},
	{Name: "sent-commands/grant", Title: "sent by clients", Better: "lower"},
	{Name: "server-ns/grant", Title: "server's time/grant"},
	{Name: "idle-commands/s", Title: "idle commands/s", Better: "lower"},
	{Name: "p50-ns/takeover", Title: "takeover p50", Interval: true},
	{Name: "max-ns/takeover", Title: "longest"},
	{Name: "max-ns/overdue", Title: "past the TTL"},
	{Name: "band-low-ns/takeover"},
	{Name: "band-high-ns/takeover"},
	{Name: "early", Title: "early", Better: "lower", Added: true},
	{Name: "late", Title: "late", Better: "lower", Added: true},
	{Name: "max-ns/notice", Title: "noticed after"},
	{Name: "stale-writes", Title: "stale writes", Better: "lower", Added: true},
	{Name: "kept", Title: "kept", Better: "higher"},
	{Name: "p50-ns/first-grant", Title: "start to first grant p50", Interval: true},
	{Name: "idle-bytes/plugin", Title: "plugin idle", Better: "lower", Tested: true},
	{Name: "held-bytes/plugin", Title: "plugin holding"},
	{Name: "plugin-bytes/lease", Title: "plugin/lease", Better: "lower"},
	{Name: "host-bytes/lease", Title: "host/lease", Better: "lower", Tested: true},
	{Name: "p50-ns/call", Title: "call p50", Interval: true},
	{Name: "p99-ns/call", Title: "p99"},
	{Name: "calls/s", Title: "calls/s", Interval: true, Better: "higher", Added: true, Tested: true},
	{Name: "trips/acquire", Better: "lower"},
	{Name: "trips/renew", Better: "lower"},
	{Name: "trips/release", Better: "lower"},
	{Name: "trips/handoff", Better: "lower"},
	{Name: "trips/takeover", Better: "lower"},
	{Name: "max-ns/stall"},
	{Name: "watched-s", Added: true},
	{Name: "losing-stalls", Better: "lower", Added: true},
	{Name: "lost-leases", Title: "lost-leases", Better: "lower", Added: true},
	{Name: "renewal-cpu-%", Title: "renewal-cpu-%", Better: "lower"},
}

// UnitOf returns the Unit with this name. For an unknown name, it returns a Unit with only a name.
func UnitOf(name string) Unit {
	for _, u := range Units {
		if u.Name == name {
			return u
		}
	}
	return Unit{Name: name}
}

// better returns the text by which results.txt says whether lower or higher values are better.
func better(name string) string {
	u := UnitOf(name)
	if strings.Contains(name, "-ns/") {
		u.Better = "lower"
	}
	if u.Better == "" {
		return ""
	}
	return "better=" + u.Better + " "
}

// Tested reports whether a comparison of two builds tests the figures of a unit. Figures that are
// not tested describe the load, or change only together with a tested figure.
func Tested(name string) bool {
	if what, op, ok := strings.Cut(name, "-ns/"); ok {
		return (what == "p50" || what == "p99") && op != "lag"
	}
	return UnitOf(name).Tested
}

// Hidden reports whether a report needs no column for a unit without a title, because a chart or
// another column shows enough.
func Hidden(name string) bool {
	known := slices.ContainsFunc(Units, func(u Unit) bool { return u.Name == name })
	return known || slices.ContainsFunc([]string{"p50-", "p90-", "p99-", "p99.9-", "max-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}
