package faults

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what docs/safety.md says of faults that were found")

const safetyPage = "../../../docs/safety.md"

// TestPage: the document has a row for each reproducer.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(safetyPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- found: written by go test ./bench/internal/faults -run TestPage -update -->\n", "<!-- end of found -->"
	head, rest, begins := strings.Cut(string(text), begin)
	_, tail, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place for what was found", safetyPage)
	}
	want := head + begin + foundTable(t) + end + tail
	if string(text) == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not list the reproducers; run this test with -update", safetyPage)
	}
	if err := os.WriteFile(safetyPage, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// foundTable has a row for each reproducer that lockbench carries.
func foundTable(t *testing.T) string {
	t.Helper()
	kept, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| fault found | how | replay it with | fixed in |\n|---|---|---|---|\n")
	for _, r := range kept {
		fmt.Fprintf(&b, "| %s | %s | `lockbench faults --replay %s` | %s |\n", r.Finding, r.How(), r.Name, r.Fixed)
	}
	return b.String() + "\n"
}
