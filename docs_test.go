package lockbench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

func TestLinksOfDocumentsLead(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	decisions, _ := filepath.Glob("docs/decisions/*.md") // the pattern is valid
	more, _ := filepath.Glob("examples/*/README.md")
	for _, file := range slices.Concat(files, decisions, more, []string{"README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md"}) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(file), m[1])
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2]) {
				t.Errorf("%s: %s has no heading %s", file, to, m[2])
			}
		}
	}
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns the anchors of a document's headings, in the form "#name".
func anchors(t *testing.T, file string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		name := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return found
}

func TestTestsNamedInSecurityExist(t *testing.T) {
	text, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) == 0 {
		t.Fatal("it names none")
	}
	for _, n := range names {
		if out, err := exec.CommandContext(t.Context(), "grep", "-rq", "--include=*_test.go", "^func "+n[1]+"(", "core", "cmd").CombinedOutput(); err != nil {
			t.Errorf("there is no %s: %v %s", n[1], err, strings.TrimSpace(string(out)))
		}
	}
}
