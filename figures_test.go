package lockbench_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// performance is the page with the measured figures. Other pages only copy rows of
// its tables.
const performance = "docs/performance.md"

var (
	measuredOn = regexp.MustCompile(`Measured on (\S+) in \S+ with (lockbench \S+),`)
	figureRow  = regexp.MustCompile(`(?m)^\| [GP][0-9]+(/\S+)? \|.*$`)
	measured   = regexp.MustCompile(`[0-9] ?(ms|µs|us|x)\b|±|[0-9] cycles/s`)
)

// TestFiguresAgree checks that a row of figures is the same in every document. README.md and
// DESIGN.md may have measured figures only in such rows. README.md must name their day and build.
func TestFiguresAgree(t *testing.T) {
	page := readText(t, performance)
	all := documents(t)
	all["DESIGN.md"] = readText(t, "DESIGN.md")
	delete(all, performance)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, row := range otherFigures(all[name], page) {
			t.Errorf("%s: %s does not say %q", name, performance, row)
		}
	}
	for _, name := range []string{"README.md", "DESIGN.md"} {
		for line := range strings.Lines(figureRow.ReplaceAllString(all[name], "")) {
			if measured.MatchString(line) {
				t.Errorf("%s has a figure that is no copy of a row of %s: %s", name, performance, strings.TrimSpace(line))
			}
		}
	}
	if !figureRow.MatchString(all["README.md"]) {
		t.Error("README.md has no figures")
	}
	run := measuredOn.FindStringSubmatch(page)
	if run == nil {
		t.Fatalf("%s does not say when it was measured", performance)
	}
	if want := run[1] + " with " + run[2]; !strings.Contains(strings.Join(strings.Fields(all["README.md"]), " "), want) {
		t.Errorf("README.md does not say that its figures are of %s", want)
	}
}

// otherFigures returns the rows of figures that are in the string text but not in the string page.
// A row is in page if a line of page begins with it.
func otherFigures(text, page string) (wrong []string) {
	for _, row := range figureRow.FindAllString(text, -1) {
		if !strings.Contains(page, "\n"+strings.TrimSpace(row)) {
			wrong = append(wrong, row)
		}
	}
	return wrong
}

func TestOtherFiguresAreFound(t *testing.T) {
	page := "\n| P1 | redis | 2.0 | <= 3 | ok |\n| P2/8 | redis | 3.0 | <= 3 | ok |\n"
	for text, want := range map[string]int{
		"| P1 | redis | 2.0 |\n| P2/8 | redis | 3.0 |": 0,
		"| P1 | redis | 2.1 |":                         1,
		"| P2/8 | redis | 2.0 |":                       1,
		"| P3 | redis | 2.0 |":                         1,
		"| p1 | redis | 2.1 |":                         0,
	} {
		if got := otherFigures(text, page); len(got) != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
