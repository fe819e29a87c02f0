// Package report renders a result folder: as text, Markdown, JSON, and as
// one self-contained HTML file. It needs the folder only.
//
// What is shown follows from what the folder holds: a scenario that was not
// measured has no section, and one that this package knows nothing about is
// shown with all its figures.
package report
