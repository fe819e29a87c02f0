package lockbench_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	fileName   = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+$|^[\w-]+\.(go|md|yaml)$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*$`)
	goFile     = regexp.MustCompile(`\b[a-z]\w*\.go\b`)
)

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

// wrongNames returns an error text for each path in a document's line that no file has. In a row of
// a table, each identifier in the last cell must occur in a file that the row names.
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
				b, _ := os.ReadFile(name) // reading a directory gives no text
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

// TestEachFileHasItsPlace checks that a package of more than 8 files lists its files in doc.go. A
// list must name each file of the package once.
func TestEachFileHasItsPlace(t *testing.T) {
	packages := map[string][]string{}
	for _, root := range []string{"core", "plugins", "bench", "cmd", "internal"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], filepath.Base(path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for dir, files := range packages {
		text, _ := os.ReadFile(filepath.Join(dir, "doc.go")) // a directory without doc.go has no list
		_, places, says := strings.Cut(string(text), "\n// # Where is what\n")
		if !says && len(files) <= 8 {
			continue
		}
		for _, wrong := range misplaced(places, files) {
			t.Errorf("%s/doc.go %s", dir, wrong)
		}
	}
}

// misplaced compares the list of files in a doc.go (places) with the package's files. It returns an
// error text for each listed name that is no file, and each file that is not listed exactly once.
func misplaced(places string, files []string) (wrong []string) {
	times := map[string]int{"doc.go": 1}
	for _, name := range goFile.FindAllString(places, -1) {
		times[name]++
		if !slices.Contains(files, name) {
			wrong = append(wrong, "names "+name+", which is not there")
		}
	}
	for _, file := range files {
		if times[file] != 1 {
			wrong = append(wrong, fmt.Sprintf("names %s %d times under %q", file, times[file], "Where is what"))
		}
	}
	return wrong
}

func TestMisplacedFilesAreFound(t *testing.T) {
	for places, want := range map[string]int{
		"a.go, b.go: both":      0,
		"a.go":                  1,
		"a.go, b.go, then a.go": 1,
		"a.go, b.go, and c.go":  1,
	} {
		if got := misplaced(places, []string{"a.go", "b.go", "doc.go"}); len(got) != want {
			t.Errorf("%s: %q", places, got)
		}
	}
}
