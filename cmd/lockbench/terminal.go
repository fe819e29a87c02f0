package main

import (
	"io"
	"os"
	"strings"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
)

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// colored reports whether w shows colors: terminals do, unless the user wants
// none (https://no-color.org).
func colored(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// The colors say nothing that the words do not.
func paint(text string, attributes ...color.Attribute) string {
	c := color.New(attributes...)
	c.EnableColor()
	return c.Sprint(text)
}

// paintReport colors the verdict, which is the first line, and makes the
// headings bold, which are not indented.
func paintReport(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, end := strings.TrimSuffix(line, "\n"), strings.Repeat("\n", strings.Count(line, "\n"))
		switch {
		case b.Len() == 0 && strings.HasPrefix(line, "safe:"):
			line = paint(line, color.FgGreen, color.Bold)
		case b.Len() == 0:
			line = paint(line, color.FgRed, color.Bold)
		case line != "" && line[0] != ' ':
			line = paint(line, color.Bold)
		}
		b.WriteString(line + end)
	}
	return b.String()
}
