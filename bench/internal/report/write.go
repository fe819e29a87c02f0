package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/results"
)

// flat is the JSON form of one figure (one unit) of one subject under one load.
type flat struct {
	results.CellName
	Kind      results.Kind `json:"kind"`
	Unit      string       `json:"unit"`
	Runs      int          `json:"runs"`
	Median    float64      `json:"median"`
	Low       *float64     `json:"low"`  // null with too few runs
	High      *float64     `json:"high"` // null with too few runs
	Min       float64      `json:"min"`  // the lowest value of all runs
	Max       float64      `json:"max"`
	Reference string       `json:"reference,omitempty"`
	Ratio     *float64     `json:"ratio,omitempty"`
	Supported *bool        `json:"ratio_supported,omitempty"`
}

func (r Report) flat() []flat {
	var out []flat
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			for _, unit := range slices.Sorted(maps.Keys(row.Figures)) {
				e := row.Figures[unit]
				f := flat{
					CellName: t.CellName, Kind: row.Kind, Unit: unit,
					Runs: e.N, Median: e.Center, Low: finite(e.Lo), High: finite(e.Hi), Min: e.Min, Max: e.Max,
				}
				f.Backend = row.Name
				if ratio, ok := row.Ratios[unit]; ok {
					f.Reference, f.Ratio, f.Supported = row.Reference, finite(ratio.Center), &ratio.Supported
				}
				out = append(out, f)
			}
		}
	}
	return out
}

func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

type violation struct {
	Rule    string `json:"rule"`
	Backend string `json:"backend"`
	Text    string `json:"text"`
}

// Write writes the report as "text" for a terminal of 80 columns, as Markdown
// ("md"), as "json" for programs, or as a page ("html").
func (r Report) Write(w io.Writer, format string) error {
	switch format {
	case "json":
		return r.json(w)
	case "html":
		return r.html(w)
	}
	return printed(w, format, r.print)
}

func (r Report) json(w io.Writer) error {
	doc := struct {
		Run        results.Manifest `json:"run"`
		Grants     int              `json:"grants_checked"`
		Unsafe     int              `json:"violations_counted"`
		Violations []violation      `json:"violations"`
		Warnings   []string         `json:"warnings"` // reasons to doubt the figures
		Safety     []check.Cell     `json:"safety,omitempty"`
		Advice     []choice         `json:"advice"`
		AdviceNote string           `json:"advice_note,omitempty"`
		Trips      []tripsOf        `json:"round_trips,omitempty"`
		Figures    []flat           `json:"figures"`
	}{Trips: r.allTrips(), Advice: append([]choice{}, r.choices()...), AdviceNote: r.choiceNote(), Safety: r.Verdict.Cells, Run: r.Manifest, Grants: r.Verdict.Granted(), Unsafe: r.Verdict.Unsafe(), Violations: []violation{}, Figures: r.flat(), Warnings: append([]string{}, r.warnings()...)}
	for _, v := range r.Verdict.Violations {
		doc.Violations = append(doc.Violations, violation{string(v.Rule), v.Backend, v.String()})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// pageFiles has the templates and scripts of the page, and uPlot, which draws the charts.
//
//go:embed page
var pageFiles embed.FS

var page = template.Must(template.New("page.html.tmpl").Funcs(template.FuncMap{
	"script": pageFile[template.JS], "style": pageFile[template.CSS], "text": pageFile[string],
}).ParseFS(pageFiles, "page/page.html.tmpl"))

func pageFile[T ~string](file string) (T, error) {
	b, err := pageFiles.ReadFile(file)
	return T(b), err
}

type pageSection struct {
	Title, Doc string
	Charts     []chart
	Tables     []grid
}

// html writes the report as one page that needs no network and no other files. Without scripts, a
// browser shows everything on the page except the charts.
func (r Report) html(w io.Writer) error {
	var sections []pageSection
	all := []chart{}
	for _, s := range r.scenarios() {
		section := pageSection{Title: s.key, Doc: proves[s.key], Charts: r.charts(s.key), Tables: r.grids(s.all)}
		sections = append(sections, section)
		all = append(all, section.Charts...)
	}
	b, err := json.Marshal(all) // Marshal escapes text that could otherwise end the script
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	findings := r.findings()
	shown := min(len(findings), shownFindings)
	err = page.Execute(&buf, map[string]any{
		"Started": r.Manifest.Started.Format("2006-01-02 15:04"), "Where": r.where(), "Command": r.command(),
		"Verdict": r.Safe(), "Bad": !strings.HasPrefix(r.Safe(), "safe"),
		"Findings": findings[:shown], "MoreFindings": findings[shown:], "Warnings": r.warnings(), "WarningsHead": headed(r.warnings()), "Remarks": r.remarks(),
		"Safety": r.safetyTable(), "SafetyNotes": r.safetyNotes(),
		"Answer": r.answer(), "Shares": r.shares(), "Summary": r.summary(), "RoundTrips": r.roundTrips(), "Environment": r.environment(),
		"Sections": sections,
		"Charts":   template.JS(b),
	})
	if err != nil {
		return err
	}
	_, err = buf.WriteTo(w)
	return err
}
