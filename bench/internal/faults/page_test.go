package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const safetyPage = "../../../docs/safety.md"

// TestPage: the document has a row for each reproducer that lockbench carries.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(safetyPage)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	rows := slices.Collect(strings.Lines(string(text)))
	for _, r := range kept {
		begin, end := fmt.Sprintf("| %s | ", r.Finding), fmt.Sprintf(" | `lockbench faults --replay %s` | %s |\n", r.Name, r.Fixed)
		if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(row, begin) && strings.HasSuffix(row, end) }) {
			t.Errorf("%s has no row that begins with %q and ends with %q", safetyPage, begin, end)
		}
	}
	if n := strings.Count(string(text), "| `lockbench faults --replay "); n != len(kept) {
		t.Errorf("%s has %d rows for %d reproducers", safetyPage, n, len(kept))
	}
}
