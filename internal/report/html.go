package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"io"
	"strings"
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
	Title, Doc string
	Charts     []chart
	Tables     []grid
}

// html writes the report as one page that needs nothing else: no network. It
// can be read without its scripts, but for the drawings.
func (r Report) html(w io.Writer) error {
	var sections []pageSection
	all := []chart{}
	for _, s := range r.scenarios() {
		section := pageSection{Title: s.key, Doc: proves[s.key], Charts: r.charts(s.key), Tables: r.grids(s.all)}
		sections = append(sections, section)
		all = append(all, section.Charts...)
	}
	b, err := json.Marshal(all) // which escapes what could end the script
	if err != nil {
		return err
	}
	license, err := pageFiles.ReadFile("page/uplot/LICENSE")
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	err = page.Execute(&buf, map[string]any{
		"Started": r.Manifest.Started.Format("2006-01-02 15:04"), "Where": r.where(), "Command": r.command(),
		"Verdict": r.Safe(), "Bad": !strings.HasPrefix(r.Safe(), "safe"),
		"Findings": folded(r.findings()), "Warnings": headed(r.warnings()), "Remarks": r.remarks(),
		"Safety": r.safetyTable(), "SafetyNotes": r.safetyNotes(),
		"Answer": r.answer(), "Shares": r.shares(), "Summary": r.summary(), "Environment": r.environment(),
		"Sections": sections, "Floors": r.grids(r.Floors),
		"Charts": template.JS(b), "License": string(license),
	})
	if err != nil {
		return err
	}
	_, err = buf.WriteTo(w)
	return err
}
