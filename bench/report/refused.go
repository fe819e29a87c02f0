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
			out = append(out, fmt.Sprintf("refused: open loop of %s at %s: of %s cycles/s offered, %s dropped, the generator late by %s at p99",
				row.Name, plural(t.Clients, "client"), grouped(row.Figures["offered/s"].Center),
				grouped(row.Figures["drops"].Center), duration(row.Figures["p99-ns/lag"].Center)))
		}
	}
	return out
}
