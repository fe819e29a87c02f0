package main

import (
	"io"

	"github.com/lockbench/lockbench/bench/report"
)

// formats are the values of --format.
var formats = []string{"text", "md", "json", "csv"}

func write(r report.Report, format string, w io.Writer) error {
	switch format {
	case "md":
		return r.Markdown(w)
	case "json":
		return r.JSON(w)
	case "csv":
		return r.CSV(w)
	}
	return r.Text(w)
}
