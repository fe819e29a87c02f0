package goals

import (
	_ "embed"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockbench/lockbench/internal/record"
)

//go:embed page.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Machine  record.Machine
	Version  string
	Commit   string // "" when unknown
	Date     string
	Took     time.Duration
	Missed   int
	Lines    []Line
	Prices   []Line
	Noise    []Line
	Scaling  []Line
	Points   []point
	Hosts    []Line
	Subjects []record.Subject
}

// WritePage writes the lines with machine, versions and date as Markdown. commit
// is that of what was measured, "" when it is not known.
func WritePage(w io.Writer, folders []Folder, lines []Line, commit string) error {
	if len(folders) == 0 {
		return ErrNoFolders
	}
	first := folders[0].Manifest
	p := page{
		Machine: first.Machine, Version: first.Lockbench, Commit: commit, Date: first.Started.UTC().Format(time.DateOnly),
		Lines: lines, Missed: Missed(lines), Prices: measured(Judge(Prices(), folders)), Noise: measured(Judge(Noise(), folders)), Scaling: measured(Judge(ScalingGoals(), folders)),
		Points: pointsIn(folders), Hosts: measured(Judge(Hosts(), folders)), Subjects: subjectsIn(folders),
	}
	for _, f := range folders {
		p.Took += time.Duration(f.Manifest.Elapsed * float64(time.Second))
	}
	p.Took = p.Took.Round(time.Second)
	return pageTemplate.Execute(w, p)
}

func measured(lines []Line) []Line {
	return slices.DeleteFunc(lines, func(l Line) bool { return l.Missing != "" })
}

// subjectsIn are all that were measured, without floors and second copies, each
// once for a kind of tokens.
func subjectsIn(folders []Folder) []record.Subject {
	var out []record.Subject
	for _, f := range folders {
		for _, s := range f.Manifest.Subjects {
			same := func(o record.Subject) bool { return o.Name == s.Name && o.Fencing == s.Fencing }
			if s.Kind != record.KindFloor && s.BuildOf == "" && !slices.ContainsFunc(out, same) {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b record.Subject) int { return strings.Compare(string(b.Kind), string(a.Kind)) })
	return out
}

// pointsIn are the scaling curves of the folders that have them.
func pointsIn(folders []Folder) []point {
	var out []point
	for _, b := range backends {
		c, _ := curveIn(folders, b) // its line among the scaling goals says why there is none
		out = append(out, c.points...)
	}
	return out
}
