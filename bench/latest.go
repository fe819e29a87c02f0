package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/results"
)

// latest is the middle of each latency of the cell that was measured last and
// how many cycles it did, behind what is being measured; "" without any.
func latest(c cell, measured results.Cell) string {
	var figures []string
	for _, op := range []string{"acquire", "handoff", "takeover", "first-grant", "call"} {
		if took := slices.Sorted(slices.Values(measured.Latencies[op])); len(took) > 0 {
			figures = append(figures, fmt.Sprintf("%s p50 %v", op, time.Duration(results.Quantile(took, 0.5)).Round(100*time.Nanosecond)))
		}
	}
	for _, unit := range []string{"cycles/s", "grants/s", "calls/s"} {
		if v, ok := measured.Values[unit]; ok {
			figures = append(figures, fmt.Sprintf("%.0f %s", v, unit))
		}
	}
	if len(figures) == 0 {
		return ""
	}
	return fmt.Sprintf("; before: %s, %s: %s", c.subject.Name, c.label(), strings.Join(figures, ", "))
}
