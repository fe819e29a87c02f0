package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// writeGrid aligns a table whose first line holds the titles, and whose first
// and last columns are text. With rule it is Markdown.
func writeGrid(b *strings.Builder, cells [][]string, left, between string, rule bool) {
	width := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, text := range line {
			width[i] = max(width[i], utf8.RuneCountInString(text))
		}
	}
	for n, line := range cells {
		padded := make([]string, len(line))
		for i, text := range line {
			padded[i] = pad(text, width[i], i > 0 && i < len(line)-1)
		}
		text := left + strings.Join(padded, between)
		if rule {
			text += " |"
		}
		fmt.Fprintln(b, strings.TrimRight(text, " "))
		if n == 0 && rule {
			for i := range line {
				if i > 0 && i < len(line)-1 {
					b.WriteString("| ---: ")
				} else {
					b.WriteString("| --- ")
				}
			}
			b.WriteString("|\n")
		}
	}
}
