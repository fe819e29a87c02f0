package lockbench_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var variable = regexp.MustCompile(`\bLOCK(?:BENCH|PLUGIN)_[A-Z0-9]+(?:_[A-Z0-9]+)*\b`)

// The table in CONTRIBUTING.md must list each environment variable that a source file names. Each
// row names a variable and some files. At least one of these files must contain that name.
func TestEnvironmentVariablesAreListed(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `LOCK") {
			continue
		}
		cells := strings.Split(line, "|")
		files := texts(t, cells[2])
		for _, name := range variable.FindAllString(cells[1], -1) {
			listed[name] = true
			word := regexp.MustCompile(name + `\b`)
			if !slices.ContainsFunc(files, word.MatchString) {
				t.Errorf("%s is in none of the files of its row: %s", name, strings.TrimSpace(cells[2]))
			}
		}
	}
	read := variables(t)
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if !listed[name] {
			t.Errorf("CONTRIBUTING.md does not list %s, which is in %s", name, read[name])
		}
	}
}

func texts(t *testing.T, cell string) (found []string) {
	t.Helper()
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		text, err := os.ReadFile(m[1])
		if err != nil {
			t.Error(err)
		}
		found = append(found, string(text))
	}
	return found
}

func variables(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "results", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular() || filepath.Ext(path) == ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, name := range variable.FindAllString(string(text), -1) {
			found[name] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("the sources have none")
	}
	return found
}
