package report

import (
	_ "embed"
	"html/template"
	"io"
	"slices"

	"github.com/lockbench/lockbench/bench/record"
)

//go:embed page.html.tmpl
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

type pageCell struct {
	Text   string
	Number bool
}

type pageRow struct {
	Kind  record.Kind
	Cells []pageCell
}

type pageTable struct {
	Title   string
	Floors  string
	Columns []pageCell
	Rows    []pageRow
}

// HTML writes the report as one page that needs nothing else: no network, no
// scripts, light or dark as the reader's system is.
func (r Report) HTML(w io.Writer) error {
	headline := r.Headline()
	notes := slices.DeleteFunc(r.closing(), func(s string) bool {
		return s == r.Safe() || s == r.where() || slices.Contains(headline, s)
	})
	data := struct {
		Started, Where, Verdict string
		Bad                     bool
		Headline, Notes         []string
		Tables                  []pageTable
	}{
		Started: r.Manifest.Started.Format("2006-01-02 15:04"), Where: r.where(), Verdict: r.Safe(),
		Bad:      r.Verdict.Unsafe() > 0 || r.Verdict.Granted() == 0,
		Headline: headline, Notes: notes,
	}
	for _, t := range r.Tables {
		data.Tables = append(data.Tables, r.pageTable(t))
	}
	return page.Execute(w, data)
}

func (r Report) pageTable(t Table) pageTable {
	out := pageTable{Title: r.title(t), Floors: t.floors()}
	cols := columns(t)
	for _, c := range cols {
		out.Columns = append(out.Columns, pageCell{c.title, c.number})
	}
	for _, row := range t.Rows {
		p := pageRow{Kind: row.Kind}
		for _, c := range cols {
			p.Cells = append(p.Cells, pageCell{c.text(row), c.number})
		}
		out.Rows = append(out.Rows, p)
	}
	return out
}
