package claim

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	safetyPage   = "../../docs/safety.md"
	backendsPage = "../../docs/backends.md"
)

// exceptions are those of all backends, by the name of one; "all" for everywhere.
func exceptions() map[string][]Exception {
	all := map[string][]Exception{"all": everywhere}
	for _, b := range backends {
		all[b.name] = b.terms.Exceptions
	}
	return all
}

// TestPages: docs/safety.md has a row for each rule and each condition, and one for
// each exception that says what does not hold; docs/backends.md says why two may hold a
// lock.
func TestPages(t *testing.T) {
	safety, why := read(t, safetyPage), strings.Join(strings.Fields(read(t, backendsPage)), " ")
	var rows []string
	for _, r := range rules {
		rows = append(rows, string(r))
	}
	for backend, some := range exceptions() {
		for _, e := range some {
			for _, c := range slices.Concat(e.All, e.Any) {
				rows = append(rows, string(c))
			}
			rows = append(rows, exceptionRow(backend, e))
			if !slices.Contains(e.Rules, Overlap) {
				continue
			}
			if e.Why == "" || !strings.Contains(why, strings.ToUpper(e.Why[:1])+e.Why[1:]+" [") {
				t.Errorf("%s does not say why %v is an exception of %s, with its source: %q", backendsPage, e.All, backend, e.Why)
			}
		}
	}
	for _, row := range rows {
		if !strings.Contains(safety, "\n| "+row+" | ") {
			t.Errorf("%s has no row that begins with %q", safetyPage, row)
		}
	}
}

func exceptionRow(backend string, e Exception) string {
	var gone []string
	for _, r := range rules {
		if slices.Contains(e.Rules, r) {
			gone = append(gone, string(r))
		}
	}
	under := names(e.All, " and ")
	if len(e.Any) > 0 {
		under += ", and " + names(e.Any, " or ")
	}
	return fmt.Sprintf("%s | %s | %s", backend, under, strings.Join(gone, ", "))
}

func names(of []Condition, between string) string {
	var out []string
	for _, c := range of {
		out = append(out, string(c))
	}
	return strings.Join(out, between)
}

// TestSourcesCited: a number in brackets in either page is that of a source,
// and each source is cited.
func TestSourcesCited(t *testing.T) {
	safety := read(t, safetyPage)
	_, list, _ := strings.Cut(safety, "\n## Sources\n")
	sources := map[string]bool{} // by number, and whether it is cited
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(list, -1) {
		sources[m[1]] = false
	}
	for _, m := range regexp.MustCompile(`\[(\d+(?:, \d+)*)\](?:[^(]|$)`).FindAllStringSubmatch(safety+read(t, backendsPage), -1) {
		for number := range strings.SplitSeq(m[1], ", ") {
			if _, known := sources[number]; !known {
				t.Errorf("[%s] is cited, and is no source", number)
			}
			sources[number] = true
		}
	}
	for number, cited := range sources {
		if !cited {
			t.Errorf("nothing cites [%s]", number)
		}
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
