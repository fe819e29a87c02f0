// Package report renders a folder with the results of a run: as text, Markdown, JSON, and as one
// self-contained HTML file. It needs only the folder.
//
// A scenario that was not measured has no section. A scenario that this package does not know is
// shown with all its figures.
//
// # Where is what
//
//   - report.go: Load; write.go: the formats; text.go: text and Markdown
//   - grid.go: tables; format.go: figures in them
//   - verdict.go, notes.go: whether the run was safe, and notes on the run
//   - answer.go: which backend to choose; drawing.go: its picture; ttl.go: which TTL to choose
//   - chart.go: charts of the page
//   - roundtrips.go: round trips; environment.go: the machine and the servers
//   - compare.go: comparison of two builds
package report
