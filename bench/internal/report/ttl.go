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

// ttlRow is what was met with one TTL on one backend, in all runs together.
type ttlRow struct {
	results.Subject
	ttl          time.Duration
	spent        *hdrhistogram.Histogram // of the TTL, when renewals were confirmed
	lost, stalls int                     // leases that were lost, and by how many stalls
	watched      time.Duration
	overdue      float64 // ns beyond the TTL until a lost machine was replaced; negative when nobody looked
}

// ttlRows are those of tables of scenario ttl, the shortest TTL of a backend first.
func (r Report) ttlRows(ts []Table) (out []ttlRow) {
	for _, t := range ts {
		ttl, err := time.ParseDuration(t.Mode)
		for _, row := range t.Rows {
			spent := r.Latencies[results.HistogramKey{CellName: t.cellOf(row), Op: "spent"}]
			if err != nil || spent == nil {
				continue // no renewal was confirmed, or lockbench has not written it
			}
			of := ttlRow{
				Subject: row.Subject, ttl: ttl, spent: spent, lost: int(total(row.Runs["lost-leases"])), stalls: int(total(row.Runs["losing-stalls"])),
				watched: time.Duration(total(row.Runs["watched-s"]) * float64(time.Second)), overdue: -1,
			}
			if e := row.Figures["max-ns/overdue"]; e.N > 0 {
				of.overdue = e.Max
			}
			out = append(out, of)
		}
	}
	slices.SortStableFunc(out, func(a, b ttlRow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ttl, b.ttl))
	})
	return out
}

func total(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// slack is what a share of the renewals had left of the TTL, or more.
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
	stalled := 0.0
	for _, t := range ts {
		for _, row := range t.Rows {
			stalled = max(stalled, row.Figures["max-ns/stall"].Max)
		}
	}
	return tabulate(grid{
		Title: strings.Join(append([]string{"ttl, what renewals had left of the lease"}, ts[0].held()...), ", "),
		Note:  fmt.Sprintf("The process that held the leases stood still for %s at most. A TTL with losses was not tried with a lost machine.", duration(stalled)),
		Keys:  2,
	}, []column[ttlRow]{
		{gridColumn{"backend", false}, func(t ttlRow) cell { return subject(t.Subject) }},
		numberColumn("TTL", func(t ttlRow) cell { return numeric(t.ttl.String(), float64(t.ttl)) }),
		numberColumn("renewals", func(t ttlRow) cell { return count(t.spent.TotalCount()) }),
		slack("slack p50", 0.5), slack("p99.9", 0.999), slack("least", 1),
		numberColumn("false losses", func(t ttlRow) cell { return numeric(grouped(float64(t.lost)), float64(t.lost)) }),
		numberColumn("in stalls", func(t ttlRow) cell { return numeric(grouped(float64(t.stalls)), float64(t.stalls)) }),
		numberColumn("replaced within", func(t ttlRow) cell {
			if t.overdue < 0 {
				return cell{}
			}
			return took(int64(t.ttl) + int64(t.overdue))
		}),
	}, r.ttlRows(ts))
}

// soundShare is the part of a TTL that every renewal must have left. One in time has
// almost two thirds: so a stall of four times the longest one that was met costs no lease.
const soundShare = 0.5

func (t ttlRow) sound() bool {
	return t.lost == 0 && float64(t.slack(1)) >= soundShare*float64(t.ttl)
}

// said is what is to be said of a TTL.
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

// ttlChoices say of each backend how short a TTL was borne, and what became of the
// next shorter ones, down to the first that lost a lease.
func (r Report) ttlChoices() (out []choice) {
	rows := filter(r.ttlRows(near(r.of(ttlScenario))), func(t ttlRow) bool { return r.candidate(t.Subject) })
	for _, g := range groups(rows, func(t ttlRow) string { return t.Name }) {
		at := len(g.all)
		for at > 0 && g.all[at-1].sound() {
			at--
		}
		c := choice{Need: "the shortest TTL for " + g.key, Measured: "none of those that were tried"}
		if at < len(g.all) {
			c.Need += fmt.Sprintf(", for %s leases of a host or fewer", grouped(leasesFor(g.all, g.all[at].ttl)))
			c.Take, c.Measured = []string{g.all[at].ttl.String()}, g.all[at].said()
		}
		var others []string
		for ; at > 0; at-- {
			t := g.all[at-1]
			if others = append(others, fmt.Sprintf("%v: %s", t.ttl, t.said())); t.lost > 0 {
				break
			}
		}
		c.Others = strings.Join(others, ". ")
		out = append(out, c)
	}
	return out
}

// leasesFor is how many leases of one TTL, each of which is renewed every third of it,
// take as many renewals a second as those of all TTLs together took.
func leasesFor(all []ttlRow, ttl time.Duration) float64 {
	rate := 0.0
	for _, t := range all {
		rate += float64(t.spent.TotalCount()) / max(t.watched.Seconds(), 1)
	}
	return math.Ceil(rate * ttl.Seconds() / 3)
}

// power says what no loss in the time of scenario ttl proves; "" where it was not
// measured. Of what was not met in a time T, that it comes more often than three times
// in T is refuted at a level of 5 % (Hanley and Lippman-Hand: If nothing goes wrong, is
// everything all right?, JAMA 249, 1983). Renewals are no trials: one stall concerns
// the leases of its moment together.
func (r Report) power() string {
	rows := r.ttlRows(near(r.of(ttlScenario)))
	if len(rows) == 0 {
		return ""
	}
	watched := rows[0].watched
	for _, t := range rows {
		watched = min(watched, t.watched)
	}
	return fmt.Sprintf("No false loss in %v means, with 95 %% confidence, that a stall which causes one comes less than once in %v (rule of three): --for 3h could show less than once an hour.",
		watched.Round(time.Second), (watched / 3).Round(time.Second))
}
