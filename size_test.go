package lockbench_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sizes limits the lines of Go code in each part of the repository, without generated code. After a
// change that makes a part smaller, lower its limit. A higher limit needs a design decision.
var sizes = []struct {
	part        string
	dirs        []string
	code, tests int
}{
	{"product", []string{"core", "plugins"}, 39_719, 32_249},
	{"laboratory", []string{"bench", "cmd", "internal"}, 31_733, 10_670},
	{"examples", []string{"examples"}, 1_630, 1_913},
}

func TestSize(t *testing.T) {
	for _, s := range sizes {
		code, tests := 0, 0
		for _, dir := range s.dirs {
			c, n := lines(t, dir)
			code, tests = code+c, tests+n
		}
		t.Logf("%s: %d lines of code, %d of tests", s.part, code, tests)
		if code > s.code || tests > s.tests {
			t.Errorf("%s: %d lines of code and %d of tests, above the budget of %d and %d (decision tools-5)", s.part, code, tests, s.code, s.tests)
		}
	}
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// lines counts the lines of the Go files below dir that are not generated,
// including comments and blank lines.
func lines(t *testing.T, dir string) (code, tests int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || generated.Match(text) {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); strings.HasSuffix(path, "_test.go") {
			tests += n
		} else {
			code += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return code, tests
}
