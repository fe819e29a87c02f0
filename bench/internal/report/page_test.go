package report

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func dom(t *testing.T, r Report) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(output(t, r, "html")))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func elements(doc *html.Node, tag, class string) []*html.Node {
	var out []*html.Node
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == tag && (class == "" || slices.Contains(strings.Fields(attr(n, "class")), class)) {
			out = append(out, n)
		}
	}
	return out
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

func TestPageNeedsNothingElse(t *testing.T) {
	doc := dom(t, everything(t, false))
	policy := false
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			local := strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "data:")
			if (a.Key == "src" || a.Key == "href") && !local {
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
			policy = policy || a.Key == "content" && strings.HasPrefix(a.Val, "default-src 'none'; ")
		}
	}
	if !policy {
		t.Error("the page may load from elsewhere")
	}
	text := textOf(doc)
	for _, want := range []string{"prefers-color-scheme: dark", "redis (plugin)", "<a CPU>", "The MIT License", "rss-bytes"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}

func TestPageVerdictStandsFirst(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		r := everything(t, overlap)
		doc := dom(t, r)
		verdicts := elements(doc, "p", "verdict")
		if len(verdicts) != 1 || !strings.Contains(textOf(verdicts[0]), r.Safe()) || strings.Contains(attr(verdicts[0], "class"), "bad") != overlap {
			t.Errorf("overlap=%v: verdicts %v", overlap, verdicts)
		}
		for n := range doc.Descendants() {
			if n == verdicts[0] {
				break
			}
			if n.Data == "table" || n.Data == "figure" {
				t.Errorf("a %s stands above the verdict", n.Data)
			}
		}
	}
}

func TestPageCharts(t *testing.T) {
	doc := dom(t, everything(t, false))
	var specs []chart
	for _, s := range elements(doc, "script", "") {
		if attr(s, "id") == "charts" {
			if err := json.Unmarshal([]byte(textOf(s)), &specs); err != nil {
				t.Fatal(err)
			}
		}
	}
	figures := elements(doc, "figure", "chart")
	if len(figures) != len(specs) || len(specs) != 6 {
		t.Fatalf("%d figures of %d charts, want 6", len(figures), len(specs))
	}
	for i, c := range specs {
		if attr(figures[i], "id") != c.ID {
			t.Errorf("figure %q is of chart %q", attr(figures[i], "id"), c.ID)
		}
		for _, v := range c.Views {
			for _, l := range v.Lines {
				if len(l.Points) == 0 {
					t.Errorf("%s, %s: %s has no points", c.ID, v.Label, l.Name)
				}
			}
		}
	}
}

// TestEveryFigureHasATable checks that screen readers skip each drawing, and that keyboard users
// can open or reach the same figures as text.
func TestEveryFigureHasATable(t *testing.T) {
	figures := elements(dom(t, everything(t, false)), "figure", "")
	for _, f := range figures {
		if attr(f, "class") == "picture" { // the summary, which the page always shows, has its figures
			if links := elements(f, "a", ""); len(links) != 1 || attr(links[0], "href") != "#summary" {
				t.Error("the picture does not lead to the table that says the same")
			}
			continue
		}
		folds := elements(f, "details", "")
		if strings.HasSuffix(attr(f, "id"), "-load") { // the last details element has its figures
			all := elements(f.Parent, "details", "")
			folds = all[len(all)-1:]
		}
		if len(folds) != 1 || len(elements(folds[0], "summary", "")) != 1 || len(elements(folds[0], "table", "")) == 0 {
			t.Errorf("a figure of class %s has no table to open", attr(f, "class"))
		}
		for n := range f.Descendants() {
			if attr(n, "aria-hidden") == "true" && (len(elements(n, "button", "")) > 0 || len(elements(n, "table", "")) > 0) {
				t.Errorf("a figure of class %s hides what keys reach", attr(f, "class"))
			}
		}
	}
	if len(figures) == 0 || attr(figures[0], "class") != "picture" {
		t.Error("the first figure is not the choice")
	}
}

func TestPageTables(t *testing.T) {
	doc := dom(t, everything(t, false))
	for _, table := range elements(doc, "table", "") {
		if region := table.Parent; attr(region, "tabindex") != "0" || attr(region, "aria-label") == "" {
			t.Errorf("a table in %v cannot be scrolled by keys", region.Attr)
		}
		for _, th := range elements(table, "th", "") {
			if attr(th, "scope") == "" {
				t.Errorf("a title without a scope: %s", textOf(th))
			}
		}
	}
}

// TestPageInBrowser checks that a real browser, if one is installed, draws every chart.
func TestPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium to draw the page")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	r := everything(t, false)
	if err := os.WriteFile(path, []byte(output(t, r, "html")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", "file://"+path)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Skipf("this chromium does not start here: %v", err)
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.Contains(line, ":CONSOLE") {
			t.Error(line)
		}
	}
	doc, err := html.Parse(&stdout)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range elements(doc, "figure", "chart") {
		if drawn := attr(f, "data-drawn"); drawn == "" || drawn == "0" || len(elements(f, "canvas", "")) != 1 {
			t.Errorf("chart %s was not drawn: %q lines", attr(f, "id"), drawn)
		}
	}
}
