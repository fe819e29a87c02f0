package lockbench_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Design decisions must be short, because authors of all later changes must follow them.
const (
	mostDecisionLines = 10  // lines of one decision, without blank lines
	mostDecisionWidth = 120 // characters of one line
	mostDecisionWords = 9_000
)

var (
	decision      = regexp.MustCompile(`(?m)^## ([a-z]+)-([0-9]+)\n\n\*\*[^*]+\*\*`)
	namesDecision = regexp.MustCompile(`\bdecisions? ([a-z]+-[0-9]+)(?: and ([a-z]+-[0-9]+))?`)
)

// TestDecisions checks that the numbers of decisions in a file rise, up to at most the number that
// docs/decisions/README.md gives for it. Every decision must be short and name a rejected design.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile("docs/decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := len(strings.Fields(string(index)))
	for _, file := range decisionFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words += len(strings.Fields(string(text)))
		room := strings.TrimSuffix(filepath.Base(file), ".md")
		row := regexp.MustCompile(`(?m)^\| \[[^]]+\]\(` + room + `\.md\) \| ` + room + `-([0-9]+) \|$`).FindSubmatch(index)
		if row == nil {
			t.Errorf("docs/decisions/README.md has no row for %s", file)
			continue
		}
		last, _ := strconv.Atoi(string(row[1])) // the pattern allows only digits
		at := decision.FindAllStringSubmatchIndex(string(text), -1)
		if headings := strings.Count(string(text), "\n## "); headings != len(at) || headings == 0 {
			t.Errorf("%s has %d headings and %d decisions, each of which begins with a bold sentence", file, headings, len(at))
		}
		before := 0
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			number, _ := strconv.Atoi(string(text[m[4]:m[5]])) // the pattern allows only digits
			id := fmt.Sprintf("%s-%d", text[m[2]:m[3]], number)
			if string(text[m[2]:m[3]]) != room || number <= before || number > last {
				t.Errorf("%s: %s stands behind %s-%d, and the index knows numbers up to %d", file, id, room, before, last)
			}
			before = number
			isShort(t, id, string(text[m[5]:end]))
		}
	}
	if words > mostDecisionWords {
		t.Errorf("docs/decisions has %d words, more than %d: let go of what binds no more", words, mostDecisionWords)
	}
	t.Logf("%d words", words)
}

func decisionFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "README.md" })
}

func isShort(t *testing.T, id, body string) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > mostDecisionWidth {
			t.Errorf("%s has a line of %d characters", id, n)
		}
	}
	if lines > mostDecisionLines {
		t.Errorf("%s has %d lines, more than %d", id, lines, mostDecisionLines)
	}
	if !strings.Contains(body, "\nRejected: ") {
		t.Errorf("%s does not say what was rejected", id)
	}
}

// Each decision that a comment or a page names must exist.
func TestDecisionsNamedElsewhereExist(t *testing.T) {
	var known []string
	for _, file := range decisionFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range decision.FindAllStringSubmatch(string(text), -1) {
			known = append(known, m[1]+"-"+m[2])
		}
	}
	named := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (path == "bin" || path == "results" || strings.HasPrefix(path, ".") && path != "."):
			return fs.SkipDir
		case e.IsDir(), !slices.Contains([]string{".go", ".md", ".lua", ".proto"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range namesDecision.FindAllSubmatch(text, -1) {
			named++
			for _, id := range m[1:] {
				if len(id) > 0 && !slices.Contains(known, string(id)) {
					t.Errorf("%s names decision %s, which does not exist", path, id)
				}
			}
		}
		return err
	})
	if err != nil || named == 0 {
		t.Fatal(err, named)
	}
}

// TestDesignIsOnePage checks that DESIGN.md stays short. Details belong in docs/decisions.
func TestDesignIsOnePage(t *testing.T) {
	text, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > 900 {
		t.Errorf("DESIGN.md has %d words: a new decision goes to docs/decisions", words)
	}
}
