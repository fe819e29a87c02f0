package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// ttlRow is the result of all runs that held leases of one TTL for one number of clients.
type ttlRow struct {
	results.Subject
	clients      int
	ttl          time.Duration
	spent        *hdrhistogram.Histogram // ns of the TTL that had passed at each confirmed renewal
	lost, stalls int                     // number of lost leases, and of the stalls that caused the losses
	watched      time.Duration
	overdue      float64 // ns from the end of the TTL until a lost machine was replaced; negative if not measured
}

// ttlRows returns the rows of scenario ttl, sorted by backend, number of clients, and TTL.
func (r Report) ttlRows(ts []Table) (out []ttlRow) {
	for _, t := range ts {
		ttl, err := time.ParseDuration(t.Mode)
		for _, row := range t.Rows {
			spent := r.Latencies[results.HistogramKey{CellName: t.cellOf(row), Op: "spent"}]
			if err != nil || spent == nil {
				continue // no renewal was confirmed, or lockbench did not write the row
			}
			of := ttlRow{
				Subject: row.Subject, clients: t.Clients, ttl: ttl, spent: spent, lost: int(total(row.Runs["lost-leases"])), stalls: int(total(row.Runs["losing-stalls"])),
				watched: time.Duration(total(row.Runs["watched-s"]) * float64(time.Second)), overdue: -1,
			}
			if e := row.Figures["max-ns/overdue"]; e.N > 0 {
				of.overdue = e.Max
			}
			out = append(out, of)
		}
	}
	slices.SortStableFunc(out, func(a, b ttlRow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.clients, b.clients), cmp.Compare(a.ttl, b.ttl))
	})
	return out
}

func total(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// slack returns how many nanoseconds of the TTL were left at renewals. The given share of the
// renewals had at least so much of the TTL left.
func (t ttlRow) slack(share float64) int64 {
	return max(0, int64(t.ttl)-t.spent.ValueAtQuantile(100*share))
}

// ttlTable shows scenario ttl: a row for each TTL of each backend.
func (r Report) ttlTable(ts []Table) grid {
	slack := func(title string, share float64) column[ttlRow] {
		return numberColumn(title, func(t ttlRow) cell {
			if share < 1 && !enough(t.spent.TotalCount(), share) {
				return cell{}
			}
			return took(t.slack(share))
		})
	}
	note := "Losses are false ones: nothing was broken. The process that held the leases was not seen to stand still."
	if stalled := longestStall(ts); stalled > 0 {
		note = strings.Replace(note, "was not seen to stand still", "stood still for "+duration(stalled)+" at most", 1)
	}
	rows := r.ttlRows(ts)
	if slices.ContainsFunc(rows, func(t ttlRow) bool { return !enough(t.spent.TotalCount(), 0.999) }) {
		note += fmt.Sprintf(" A blank p99.9 had fewer than %s renewals.", grouped(beyond/0.001))
	}
	if slices.ContainsFunc(rows, func(t ttlRow) bool { return t.lost > 0 }) {
		note += " A TTL with losses was not tried with a lost machine."
	}
	return tabulate(grid{
		Title: joined("ttl, slack: what renewals had left of the lease", plural(ts[0].Clients, "client"), ts[0].held()),
		Note:  note,
		Keys:  2,
	}, []column[ttlRow]{
		{gridColumn{"backend", false}, func(t ttlRow) cell { return subject(t.Subject) }},
		numberColumn("TTL", func(t ttlRow) cell { return numeric(t.ttl.String(), float64(t.ttl)) }),
		numberColumn("renewals", func(t ttlRow) cell { return count(t.spent.TotalCount()) }),
		slack("p50", 0.5), slack("p99.9", 0.999), slack("least", 1),
		numberColumn("losses", func(t ttlRow) cell { return numeric(grouped(float64(t.lost)), float64(t.lost)) }),
		numberColumn("replaced", func(t ttlRow) cell {
			if t.overdue < 0 {
				return cell{}
			}
			return took(int64(t.ttl) + int64(t.overdue))
		}),
	}, rows)
}

func longestStall(ts []Table) (stalled float64) {
	for _, t := range ts {
		for _, row := range t.Rows {
			stalled = max(stalled, row.Figures["max-ns/stall"].Max)
		}
	}
	return stalled
}

// soundShare is the part of a TTL that must be left at each renewal. If less is left, the report
// does not advise the TTL. A punctual renewal has 2/3 of the TTL left. If 1/2 is left, the renewal
// was late by 1/6 of the TTL. A lease survives a renewal that is late by almost 2/3 of the TTL.
const soundShare = 0.5

func (t ttlRow) sound() bool {
	return t.lost == 0 && float64(t.slack(1)) >= soundShare*float64(t.ttl)
}

func (t ttlRow) said() string {
	switch {
	case t.lost == 1:
		return "1 false loss"
	case t.lost > 0:
		return fmt.Sprintf("%s false losses in %s", grouped(float64(t.lost)), plural(t.stalls, "stall"))
	}
	out := fmt.Sprintf("no false loss in %s renewals", grouped(float64(t.spent.TotalCount())))
	if !t.sound() {
		out += fmt.Sprintf(", but only %.0f %% of it was left once", math.Floor(100*float64(t.slack(1))/float64(t.ttl)))
	}
	if t.overdue >= 0 {
		out += fmt.Sprintf("; a lost machine is replaced within %s", duration(float64(t.ttl)+t.overdue))
	}
	return out
}

// manyLeases is a number of leases of one host. If so many leases with the advised TTL would need
// too many renewals per second, the report also advises a longer TTL.
const manyLeases = 1000

// ttlChoices advises, for each backend and number of clients, the shortest TTL above the longest
// unsound TTL (see soundShare). It also describes shorter TTLs, down to the longest that lost a
// lease. For the largest number of clients, it may also advise a longer TTL, for manyLeases leases.
func (r Report) ttlChoices() (out []choice) {
	rows := filter(r.ttlRows(near(r.of(ttlScenario))), func(t ttlRow) bool { return r.candidate(t.Subject) })
	for _, g := range groups(rows, func(t ttlRow) [2]any { return [2]any{t.Name, t.clients} }) {
		at := len(g.all)
		for at > 0 && g.all[at-1].sound() {
			at--
		}
		var others []string
		for i := at; i > 0; i-- {
			t := g.all[i-1]
			if others = append(others, fmt.Sprintf("%v: %s", t.ttl, t.said())); t.lost > 0 {
				break
			}
		}
		if at == len(g.all) {
			out = append(out, choice{Need: fmt.Sprintf("the shortest TTL for %s, with %s", g.all[0].Name, plural(g.all[0].clients, "client")), Measured: "none of those that were tried", Others: strings.Join(others, ". ")})
			continue
		}
		out = append(out, g.all[at].choice(g.all, others))
		many := slices.IndexFunc(g.all, func(t ttlRow) bool { return leasesFor(g.all, t.ttl) >= manyLeases })
		if many > at && !slices.ContainsFunc(rows, func(t ttlRow) bool { return t.Name == g.all[0].Name && t.clients > g.all[0].clients }) {
			out = append(out, g.all[many].choice(g.all, nil))
		}
	}
	return out
}

// choice advises the TTL of row t. The slice all has the rows of all TTLs tried at the same time.
func (t ttlRow) choice(all []ttlRow, others []string) choice {
	return choice{
		Need: fmt.Sprintf("the shortest TTL for %s, for up to %s leases of a host", t.Name, grouped(leasesFor(all, t.ttl))),
		Take: []string{t.ttl.String()}, Measured: t.said(), Others: strings.Join(others, ". "),
	}
}

// leasesFor returns how many leases of the given TTL a host can renew. It assumes the renewal rate
// that the run has reached over all TTLs. A lease is renewed three times in each TTL.
func leasesFor(all []ttlRow, ttl time.Duration) float64 {
	rate := 0.0
	for _, t := range all {
		rate += float64(t.spent.TotalCount()) / max(t.watched.Seconds(), 1)
	}
	return math.Ceil(rate * ttl.Seconds() / 3)
}

// power says how rare stalls with a loss must be, if the run lost no lease. It is "" if scenario
// ttl was not measured. If an event does not occur in a period, then with 95 % confidence it occurs
// on average less than three times in such a period. The source is Hanley and Lippman-Hand, If
// nothing goes wrong, is everything all right?, JAMA 249, 1983. power counts time and not renewals,
// because one stall delays all renewals.
func (r Report) power() string {
	rows := r.ttlRows(near(r.of(ttlScenario)))
	if len(rows) == 0 {
		return ""
	}
	watched := rows[0].watched
	for _, t := range rows {
		watched = min(watched, t.watched)
	}
	return fmt.Sprintf("No false loss in %v means, with 95 %% confidence, that a stall which causes one comes less than once in %v (rule of three): --for 3h could show less than once an hour. More --clients may show a shorter TTL for more leases.",
		watched.Round(time.Second), (watched / 3).Round(time.Second))
}
