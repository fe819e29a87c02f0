package faults

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const safetyPage = "../../../docs/safety.md"

var update = flag.Bool("update", false, "write the reproducers into docs/safety.md")

// TestPage checks that docs/safety.md has a row for each bug in the reproducers of this package.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(safetyPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "-run TestPage -update -->\n\n", "\n<!-- end of reproducers -->"
	head, rest, _ := strings.Cut(string(text), "faults "+begin)
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no place for the reproducers", safetyPage)
	}
	want := head + "faults " + begin + reproducerTable(t) + end + tail
	switch {
	case want == string(text):
	case !*update:
		t.Errorf("%s does not list the reproducers as they are; run this test with -update", safetyPage)
	default:
		if err := os.WriteFile(safetyPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func reproducerTable(t *testing.T) string {
	t.Helper()
	kept, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	names := map[string][]string{} // for each row, the names of its reproducers
	for _, r := range kept {
		row := fmt.Sprintf("| %s | %%s | %s |\n", strings.ReplaceAll(r.Finding, "%", "%%"), r.Fixed)
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		names[row] = append(names[row], "`"+r.Name+"`")
	}
	var b strings.Builder
	b.WriteString("| fault found | NAME | fixed in |\n|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, row, strings.Join(names[row], ", "))
	}
	return b.String()
}
