package report

import "fmt"

// refusals says which figures of the open loop are not shown, and why.
func (r Report) refusals() []string {
	var out []string
	for _, t := range r.of(acquireScenario) {
		for _, row := range t.Rows {
			if !row.refused() {
				continue
			}
			why := "not one cycle was due"
			if late := row.Figures["p50-ns/lag"]; late.N > 0 {
				why = fmt.Sprintf("%s dropped, the generator itself late by %s in the middle", plural(int(row.Figures["drops"].Center), "cycle"), duration(late.Center))
			}
			out = append(out, fmt.Sprintf("refused: open loop of %s at %s, %s cycles/s offered: %s",
				row.Name, plural(t.Clients, "client"), grouped(row.Figures["offered/s"].Center), why))
		}
	}
	return out
}
