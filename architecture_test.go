package lockbench_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	fileName   = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+$|^[\w-]+\.(go|md|yaml)$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*$`)
)

// TestArchitectureNamesWhatIsThere: the files that the page names exist, and
// the functions that a row of a table names are in the files of that row.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for _, wrong := range wrongNames(line) {
			t.Error(wrong)
		}
	}
}

// wrongNames are the files of a line that do not exist, and the identifiers in
// the last cell of a table's row that none of its files has.
func wrongNames(line string) (wrong []string) {
	var texts, identifiers []string
	cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
	for i, cell := range cells {
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			switch name := m[1]; {
			case fileName.MatchString(name):
				if _, err := os.Stat(name); err != nil {
					wrong = append(wrong, err.Error())
				}
				b, _ := os.ReadFile(name) // a directory has no text
				texts = append(texts, string(b))
			case len(cells) > 1 && i == len(cells)-1 && identifier.MatchString(name) && !strings.HasPrefix(name, "LOCKBENCH_"):
				identifiers = append(identifiers, name)
			}
		}
	}
	for _, name := range identifiers {
		word := regexp.MustCompile(`\b` + name + `\b`)
		if !slices.ContainsFunc(texts, word.MatchString) {
			wrong = append(wrong, name+" is in no file of: "+strings.TrimSpace(line))
		}
	}
	return wrong
}

// TestWrongNamesAreFound: the test above can fail.
func TestWrongNamesAreFound(t *testing.T) {
	for line, want := range map[string]int{
		"see `core/lock.go`, `core` and `wherever`": 0,
		"see `core/nothing.go`":                     1,
		"| task | `core/lock.go` `TryAcquire` |":    0,
		"| task | `core/lock.go` `TryAcquireAll` |": 1,
		"| `Nothing` | `core/lock.go` |":            0,
	} {
		if got := wrongNames(line); len(got) != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}
