package claim_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/claim"
)

var update = flag.Bool("update", false, "write what documents say of claims")

const (
	safetyPage   = "../../docs/safety.md"
	backendsPage = "../../docs/backends.md"
)

// TestPages: the documents say what the claims are.
func TestPages(t *testing.T) {
	compare(t, safetyPage, map[string]string{
		"claims": claimTable(), "conditions": conditionTable(), "exceptions": exceptionTable(), "sources": sourceList(),
	})
	breaks := map[string]string{"all": exceptionList(claim.Everywhere)}
	for _, backend := range claim.Backends() {
		breaks[backend] = exceptionList(claim.TermsOf(backend).Exceptions)
	}
	compare(t, backendsPage, breaks)
}

// compare compares the parts of a page with what they should be, or writes
// them. A part stands between two comments with its name.
func compare(t *testing.T, page string, parts map[string]string) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, part := range parts {
		begin := fmt.Sprintf("<!-- %s: written by go test ./internal/claim -run TestPages -update -->\n", name)
		end := fmt.Sprintf("<!-- end of %s -->", name)
		head, rest, begins := strings.Cut(text, begin)
		old, tail, ends := strings.Cut(rest, end)
		if !begins || !ends {
			t.Fatalf("%s has no place for %q", page, name)
		}
		if old == part {
			continue
		}
		if !*update {
			t.Errorf("%s does not say what the claims are in its part %q; run this test with -update", page, name)
		}
		text = head + begin + part + end + tail
	}
	if *update && text != string(b) {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func claimTable() string {
	var b strings.Builder
	b.WriteString("\n| rule | what it says | within | what breaks it |\n|---|---|---|---|\n")
	for _, c := range claim.Claims {
		times, _ := remarks(c.Rule)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Rule, c.Says, strings.Join(append([]string{c.Time}, times...), "; "), c.Shows)
	}
	b.WriteString("\nWhere the times come from:\n\n")
	for _, c := range claim.Claims {
		if c.From != "" {
			_, from := remarks(c.Rule)
			b.WriteString(item(fmt.Sprintf("%s: %s.", c.Rule, strings.Join(append([]string{c.From}, from...), ". "))))
		}
	}
	return b.String() + "\n"
}

// remarks are those of the backends about a claim.
func remarks(rule claim.Rule) (times, from []string) {
	for _, backend := range claim.Backends() {
		r := claim.TermsOf(backend).Remarks[rule]
		if r.Time != "" {
			times = append(times, r.Time)
		}
		if r.From != "" {
			from = append(from, r.From)
		}
	}
	return times, from
}

func conditionTable() string {
	var b strings.Builder
	b.WriteString("\n| condition | is that |\n|---|---|\n")
	for _, c := range claim.Conditions() {
		fmt.Fprintf(&b, "| %s | %s |\n", c, c.Says())
	}
	return b.String() + "\n"
}

func exceptionTable() string {
	var b strings.Builder
	b.WriteString("\n| backend | under | does not hold | source |\n|---|---|---|---|\n")
	for _, backend := range claim.Backends() {
		exceptionRows(&b, backend, claim.TermsOf(backend).Exceptions)
	}
	exceptionRows(&b, "all", claim.Everywhere)
	return b.String() + "\n"
}

func exceptionRows(b *strings.Builder, backend string, some []claim.Exception) {
	for _, e := range some {
		var rules []string
		for _, c := range claim.Claims {
			if slices.Contains(e.Rules, c.Rule) {
				rules = append(rules, string(c.Rule))
			}
		}
		under := names(e.All, " and ")
		if len(e.Any) > 0 {
			under += ", and " + names(e.Any, " or ")
		}
		fmt.Fprintf(b, "| %s | %s | %s | [%d] |\n", backend, under, strings.Join(rules, ", "), e.Source)
	}
}

func names(of []claim.Condition, between string) string {
	var out []string
	for _, c := range of {
		out = append(out, string(c))
	}
	return strings.Join(out, between)
}

func sourceList() string {
	var b strings.Builder
	b.WriteString("\n")
	for i, s := range claim.Sources {
		fmt.Fprintf(&b, "%d. %s\n", i+1, s)
	}
	return b.String() + "\n"
}

// exceptionList has one item for each of some exceptions.
func exceptionList(some []claim.Exception) string {
	var b strings.Builder
	b.WriteString("\n")
	for _, e := range some {
		b.WriteString(item(fmt.Sprintf("**%s**: %s. %s [%d].", sentence(clauses(e)), consequence(e), sentence(e.Why), e.Source)))
	}
	return b.String() + "\n"
}

// clauses say under which conditions e is one.
func clauses(e claim.Exception) string {
	var all []string
	for _, c := range e.All {
		all = append(all, c.Says())
	}
	text := strings.Join(all, ", and ")
	if len(e.Any) > 0 {
		text += ", with one of these: " + strings.ReplaceAll(names(e.Any, ", "), "-", " ")
	}
	return text
}

// consequence says what e comes to.
func consequence(e claim.Exception) string {
	var out []string
	for _, of := range []struct {
		rule claim.Rule
		text string
	}{
		{claim.Overlap, "two may hold a lock"},
		{claim.Token, "tokens may fall"},
		{claim.Deadline, "calls return late"},
		{claim.Woken, "grants come late"},
	} {
		if slices.Contains(e.Rules, of.rule) {
			out = append(out, of.text)
		}
	}
	switch overlap := slices.Contains(e.Rules, claim.Overlap); {
	case overlap && !slices.Contains(e.Rules, claim.Token):
		out = append(out, "tokens rise")
	case !overlap && slices.Contains(e.Rules, claim.Survives):
		out = append(out, "leases may be lost")
	}
	return strings.Join(out, ", ")
}

// item is one of a list, in lines as long as those around it.
func item(text string) string {
	const width = 88
	var b strings.Builder
	line := "-"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

func sentence(clause string) string { return strings.ToUpper(clause[:1]) + clause[1:] }

// TestSourcesCited: a number in brackets in either page is that of a source,
// and each source is cited.
func TestSourcesCited(t *testing.T) {
	cited := map[int]bool{}
	for _, page := range []string{safetyPage, backendsPage} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\[(\d+(?:, \d+)*)\](?:[^(]|$)`).FindAllStringSubmatch(string(text), -1) {
			for number := range strings.SplitSeq(m[1], ", ") {
				n, err := strconv.Atoi(number)
				if err != nil || claim.Source(n).String() == "" {
					t.Errorf("%s cites [%s], which is none", page, number)
				}
				cited[n] = true
			}
		}
	}
	for i := range claim.Sources {
		if !cited[i+1] {
			t.Errorf("nothing cites [%d]", i+1)
		}
	}
}
