package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/report"
	"github.com/lockbench/lockbench/internal/results"
)

// PageFile is the page of a result folder, if it has one.
const PageFile = results.ReportFile

// Check judges the safety of a result folder again, by what it has recorded.
func Check(dir string) (*Outcome, error) {
	if _, err := results.ReadManifest(dir); err != nil {
		return nil, err
	}
	v, err := check.Dir(dir)
	if err != nil {
		return nil, err
	}
	return &Outcome{text: verdictText(v), data: verdictDoc(v)}, judged(false, v, nil)
}

// verdictDoc is a verdict as JSON has it.
func verdictDoc(v check.Verdict) any {
	doc := struct {
		Granted    int             `json:"grants_checked"`
		Unsafe     int             `json:"violations_counted"`
		Truncated  bool            `json:"truncated"`
		Subjects   []check.Subject `json:"subjects"`
		Violations []string        `json:"violations"`
		Safety     []check.Cell    `json:"safety,omitempty"`
	}{v.Granted(), v.Unsafe(), v.Truncated != nil, v.Subjects, []string{}, v.Cells}
	for _, x := range v.Violations {
		doc.Violations = append(doc.Violations, x.String())
	}
	return doc
}

func verdictText(v check.Verdict) string {
	var w strings.Builder
	for _, s := range v.Subjects {
		if s.Attempts == 0 {
			continue // a floor
		}
		tokens := fmt.Sprintf("%d tokens that do not rise", s.Tokens)
		if s.Fencing == "none" {
			tokens = "no tokens"
		}
		fmt.Fprintf(&w, "%-18s %d attempts, %d grants: %d overlaps, %s\n", s.Backend, s.Attempts, s.Granted, s.Overlaps, tokens)
	}
	for _, x := range v.Violations {
		fmt.Fprintln(&w, x)
	}
	for _, c := range v.Cells {
		fmt.Fprintf(&w, "%-18s %-22s %s\n", c.Backend, c.Fault, c.Class)
		for _, x := range c.Violations {
			fmt.Fprintf(&w, "  %s\n", x)
		}
	}
	if v.Truncated != nil {
		fmt.Fprintln(&w, v.Truncated)
	}
	return w.String()
}

// Report computes tables and verdict from a result folder, and writes them as one
// HTML page to a file, whose name is returned: "" for [PageFile] in the folder, and
// - for none.
func Report(dir, page string) (*Outcome, string, error) {
	r, err := report.Load(dir)
	if err != nil {
		return nil, "", err
	}
	if page == "-" {
		return &Outcome{Dir: dir}, "", nil
	}
	if page == "" {
		page = filepath.Join(dir, PageFile)
	}
	f, err := os.Create(page)
	if err != nil {
		return nil, "", usagef("the page cannot be written: %v", err)
	}
	return &Outcome{Dir: dir}, page, errors.Join(r.HTML(f), f.Close())
}

// Merge writes one result folder from others, which are parts of one load or, with
// repeats, repetitions. It returns what the machines were busy with.
func Merge(out string, repeats bool, dirs ...string) (busy []string, err error) {
	merge := results.MergeParts
	if repeats {
		merge = results.Merge
	}
	err = merge(out, dirs...)
	switch {
	case errors.Is(err, results.ErrPlans):
		return nil, usagef("%v", err)
	case errors.Is(err, results.ErrApart):
		return nil, Hinted(&InvalidError{Err: err}, "run them with --parts, which makes them wait for each other; or --repeats, if they are repetitions")
	case errors.Is(err, results.ErrIncomplete):
		return nil, &InvalidError{Err: err}
	case err != nil:
		return nil, err
	}
	m, err := results.ReadManifest(out)
	return m.Busy(), err
}
