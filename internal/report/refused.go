package report

import (
	"fmt"

	"github.com/lockbench/lockbench/internal/results"
)

// refusals says in one line which figures of the open loop are not shown, and
// of the first of them why; none when all are.
func (r Report) refusals() []string {
	var cells []string
	first := ""
	for _, t := range r.of(acquireScenario) {
		for _, row := range t.Rows {
			if !row.refused() {
				continue
			}
			cells = append(cells, row.Name+" at "+t.load())
			if first == "" {
				first = fmt.Sprintf("%s cycles/s were offered; %s", grouped(row.Figures["offered/s"].Center), r.refusal(t, row))
			}
		}
	}
	if len(cells) == 0 {
		return nil
	}
	of := ""
	if len(cells) > 1 {
		of = " (the first)"
	}
	return []string{fmt.Sprintf("no figures of the open loop, because the load generator could not keep up, for %s%s: %s", listed(cells), of, first)}
}

// refusal is why the figures of an open loop are those of the generator, over
// all runs.
func (r Report) refusal(t Table, row Row) string {
	late, took := r.middleAndTail(t, row, "lag"), r.middleAndTail(t, row, "open-acquire")
	if late == "" || took == "" {
		return "not one cycle was due, or came through"
	}
	refused, drops := 0, 0
	for _, v := range row.Runs[refusedUnit] {
		refused += int(v)
	}
	for _, v := range row.Runs["drops"] {
		drops += int(v)
	}
	why := fmt.Sprintf("in %d of %s it was late by %s where an acquire took %s, of which half is the most",
		refused, plural(len(row.Runs[refusedUnit]), "run"), late, took)
	if drops > 0 {
		why += fmt.Sprintf("; %s dropped", plural(drops, "cycle"))
	}
	return why
}

// middleAndTail are the p50 and the p99 of an operation; "" without samples.
func (r Report) middleAndTail(t Table, row Row, op string) string {
	h := r.Latencies[results.HistogramKey{CellName: t.cellOf(row), Op: op}]
	if h == nil || h.TotalCount() == 0 {
		return ""
	}
	return fmt.Sprintf("p50 %s, p99 %s", duration(float64(h.ValueAtQuantile(50))), duration(float64(h.ValueAtQuantile(99))))
}
