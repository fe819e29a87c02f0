// Package report renders a folder with the results of a run: as text, Markdown, JSON, and as one
// self-contained HTML file. It needs only the folder.
//
// A scenario that was not measured has no section. A scenario that this package does not know is
// shown with all its figures.
//
// # Where is what
//
//   - report.go loads a folder, write.go chooses a format, and text.go writes text and Markdown.
//   - grid.go makes tables, and format.go formats the figures in tables.
//   - verdict.go says whether the run was safe, and notes.go has notes on the run.
//   - answer.go recommends a backend, drawing.go draws speeds, and ttl.go recommends a TTL.
//   - chart.go makes the charts of the page.
//   - roundtrips.go counts round trips, and environment.go describes the machine and servers.
//   - compare.go writes the comparison of two builds.
package report
