package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"io"
	"strings"

	"github.com/lockbench/lockbench/internal/record"
)

// The page's parts. uPlot draws the charts; its license stands beside it.
//
//go:embed page
var pageFiles embed.FS

var page = template.Must(template.New("page.html.tmpl").Funcs(template.FuncMap{
	"script": func(file string) (template.JS, error) { b, err := pageFiles.ReadFile(file); return template.JS(b), err },
	"style": func(file string) (template.CSS, error) {
		b, err := pageFiles.ReadFile(file)
		return template.CSS(b), err
	},
}).ParseFS(pageFiles, "page/page.html.tmpl"))

// pageSection is one scenario on the page.
type pageSection struct {
	ID, Title, Doc string
	Charts         []chart
	Timelines      []timeline
	Tables         []grid
}

// HTML writes the report as one page that needs nothing else: no network. It
// can be read without its scripts, but for the drawings.
func (r Report) HTML(w io.Writer) error {
	data := struct {
		Started, Where, Verdict      string
		Bad                          bool
		Findings                     *pageFindings
		Warnings                     *notes
		Remarks, Headline            []string
		Safety                       grid
		SafetyNotes                  []string
		Picture                      picture
		Choice, Summary, Environment grid
		Shares                       grid
		Sections                     []pageSection
		Floors                       []grid
		Command, License             string
		Charts                       template.JS
	}{
		Started: r.Manifest.Started.Format("2006-01-02 15:04"), Where: r.where(), Verdict: r.Safe(),
		Bad:      !strings.HasPrefix(r.Safe(), "safe"),
		Findings: folded(r.findings()), Warnings: headed(r.warnings()), Remarks: r.remarks(), Headline: r.Headline(),
		Safety: r.safetyTable(), SafetyNotes: r.safetyNotes(),
		Picture: r.picture(), Choice: r.choiceGrid(), Shares: r.shares(), Summary: r.summary(), Environment: r.environment(),
		Command: r.command(),
	}
	all := []chart{}
	for _, s := range r.scenarios() {
		section := pageSection{ID: s, Title: s, Doc: proves[s], Charts: r.charts(s)}
		for _, t := range r.of(s) {
			section.Tables = append(section.Tables, r.grid(t))
		}
		if s == takeoverScenario {
			section.Timelines = r.timelines()
		}
		data.Sections = append(data.Sections, section)
		all = append(all, section.Charts...)
	}
	for _, t := range r.Floors {
		data.Floors = append(data.Floors, r.grid(t))
	}
	b, err := json.Marshal(all) // which escapes what could end the script
	if err != nil {
		return err
	}
	data.Charts = template.JS(b)
	license, err := pageFiles.ReadFile("page/uplot/LICENSE")
	if err != nil {
		return err
	}
	data.License = string(license)
	var buf bytes.Buffer
	if err := page.Execute(&buf, data); err != nil {
		return err
	}
	_, err = buf.WriteTo(w)
	return err
}

// Ours reports whether a row is about a backend through its plugin.
func (g gridRow) Ours() bool { return g.Kind == record.KindPlugin }
