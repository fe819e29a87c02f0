package report

import "fmt"

// parts says from what a folder was merged.
func (r Report) parts() []string {
	parts := r.Manifest.Parts
	if len(parts) == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("merged from %d runs of lockbench", len(parts))}
	for i, p := range parts {
		line := fmt.Sprintf("part %d: %s from %s, seed %d", i+1, plural(p.Runs, "run"), p.Started.Format("2006-01-02 15:04 UTC"), p.Seed)
		if p.Machine != parts[0].Machine {
			line += fmt.Sprintf(", on another machine: %d cores, %s", p.Machine.Cores, p.Machine.CPU)
		}
		out = append(out, line)
	}
	return out
}
