package claim

import (
	"flag"
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

var update = flag.Bool("update", false, "write the exceptions into docs/safety.md")

// TestPages checks that docs/safety.md has a row for each rule and each condition, that its table
// of exceptions matches the code, and that docs/backends.md says why two hosts may hold a lock.
func TestPages(t *testing.T) {
	safety, why := read(t, safetyPage), strings.Join(strings.Fields(read(t, backendsPage)), " ")
	var rows []string
	for _, r := range Rules {
		rows = append(rows, string(r))
	}
	table := "\n| backend | does not hold | under |\n|---|---|---|\n"
	for _, b := range all() {
		for _, e := range b.terms.Exceptions {
			for _, c := range slices.Concat(e.All, e.Any) {
				rows = append(rows, string(c))
			}
			if slices.Contains(e.Rules, Overlap) && (e.Why == "" || !strings.Contains(why, strings.ToUpper(e.Why[:1])+e.Why[1:]+" [")) {
				t.Errorf("%s does not say why %v is an exception of %s, with its source: %q", backendsPage, e.All, b.name, e.Why)
			}
		}
	}
	table += exceptionRows(all())
	for _, row := range rows {
		if !strings.Contains(safety, "\n| "+row+" | ") {
			t.Errorf("%s has no row that begins with %q", safetyPage, row)
		}
	}
	head, rest, _ := strings.Cut(safety, "-run TestPages -update -->\n")
	_, tail, ok := strings.Cut(rest, "<!-- end of exceptions -->")
	want := head + "-run TestPages -update -->\n" + table + "\n<!-- end of exceptions -->" + tail
	switch {
	case !ok:
		t.Errorf("%s has no place for the exceptions", safetyPage)
	case want != safety && !*update:
		t.Errorf("%s does not list the exceptions as they are; run this test with -update", safetyPage)
	case want != safety:
		if err := os.WriteFile(safetyPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The function all returns the backends, and an entry "all" with the exceptions for every backend.
func all() []backend {
	return append(slices.Clone(backends), backend{"all", Terms{Exceptions: everywhere}})
}

// exceptionRows returns rows for docs/safety.md. Backends with the same exceptions share a row.
func exceptionRows(of []backend) (rows string) {
	var ends []string
	with := map[string][]string{}
	for _, b := range of {
		var sets []string
		under := map[string][]string{}
		for _, e := range b.terms.Exceptions {
			gone := gone(e.Rules)
			if !slices.Contains(sets, gone) {
				sets = append(sets, gone)
			}
			when := names(e.All, " and ")
			if len(e.Any) > 0 {
				when += ", and " + names(e.Any, " or ")
			}
			under[gone] = append(under[gone], when)
		}
		for _, set := range sets {
			end := fmt.Sprintf("%s | %s", set, strings.Join(under[set], "; "))
			if !slices.Contains(ends, end) {
				ends = append(ends, end)
			}
			with[end] = append(with[end], b.name)
		}
	}
	for _, end := range ends {
		rows += fmt.Sprintf("| %s | %s |\n", strings.Join(with[end], ", "), end)
	}
	return rows
}

// gone joins the names of rules. For a complete group of rules, it uses the group's name instead.
func gone(some []Rule) string {
	var out []string
	for _, set := range sets {
		lacks := func(r Rule) bool { return !slices.Contains(some, r) }
		if !slices.ContainsFunc(set.rules, lacks) {
			out = append(out, string(set.name))
			some = slices.DeleteFunc(slices.Clone(some), func(r Rule) bool { return slices.Contains(set.rules, r) })
		}
	}
	for _, r := range Rules {
		if slices.Contains(some, r) {
			out = append(out, string(r))
		}
	}
	return strings.Join(out, ", ")
}

func names(of []Condition, between string) string {
	var out []string
	for _, c := range of {
		out = append(out, string(c))
	}
	return strings.Join(out, between)
}

// TestSourcesCited checks that every number in brackets in docs/safety.md and
// docs/backends.md is the number of a source, and that each source is cited.
func TestSourcesCited(t *testing.T) {
	safety := read(t, safetyPage)
	_, list, _ := strings.Cut(safety, "\n## Sources\n")
	sources := map[string]bool{} // by number: whether the source is cited
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
