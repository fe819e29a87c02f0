package lockbench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	decision   = regexp.MustCompile(`(?m)^## (\S+)\n\n\*\*([^*]+)\*\*`)
	superseded = regexp.MustCompile(`\*Superseded by\s+\[([a-z]+-[0-9]+)\]`)
)

// room reads the decisions of one file: its text is cut before each of them.
func room(t *testing.T, file string) (ids, titles, bodies []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := decision.FindAllStringSubmatchIndex(string(text), -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		ids = append(ids, string(text[m[2]:m[3]]))
		titles = append(titles, strings.TrimRight(strings.Join(strings.Fields(string(text[m[4]:m[5]])), " "), ".:"))
		bodies = append(bodies, string(text[m[1]:end]))
	}
	if headings := strings.Count(string(text), "\n## "); headings != len(ids) {
		t.Errorf("%s has %d headings and %d decisions", file, headings, len(ids))
	}
	return ids, titles, bodies
}

// TestDecisions: ids count from 1 in each file, every decision says what was
// rejected or what superseded it, and the index has a row for each.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile("docs/decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var known, replacing []string
	rows := 0
	for _, file := range files {
		name := filepath.Base(file)
		if name == "README.md" {
			continue
		}
		ids, titles, bodies := room(t, file)
		if len(ids) == 0 {
			t.Errorf("%s has no decision", file)
		}
		for i, id := range ids {
			if want := fmt.Sprintf("%s-%d", strings.TrimSuffix(name, ".md"), i+1); id != want {
				t.Errorf("%s: %s stands where %s is expected", file, id, want)
			}
			title := titles[i]
			if by := superseded.FindStringSubmatch(bodies[i]); by != nil {
				title += " (superseded by " + by[1] + ")"
				replacing = append(replacing, by[1])
			} else if !strings.Contains(bodies[i], "Rejected: ") {
				t.Errorf("%s does not say what was rejected", id)
			}
			row := fmt.Sprintf("| [%s](%s#%s) | %s |\n", id, name, id, title)
			if !strings.Contains(string(index), row) {
				t.Errorf("docs/decisions/README.md lacks %s", row)
			}
			known, rows = append(known, id), rows+1
		}
	}
	if got := strings.Count(string(index), "\n| ["); got != rows {
		t.Errorf("docs/decisions/README.md has %d rows for %d decisions", got, rows)
	}
	for _, id := range replacing {
		if !slices.Contains(known, id) {
			t.Errorf("something is superseded by %s, which does not exist", id)
		}
	}
}

// TestDesignIsOnePage: what does not carry the rest stands in docs/decisions.
func TestDesignIsOnePage(t *testing.T) {
	text, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > 900 {
		t.Errorf("DESIGN.md has %d words: a new decision goes to docs/decisions", words)
	}
}
