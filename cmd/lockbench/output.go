package main

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/lockbench/lockbench/internal/report"
)

// formats are the values of --format.
var formats = []string{"text", "md", "json"}

func write(r report.Report, format string, w io.Writer) error {
	switch format {
	case "md":
		return r.Markdown(w)
	case "json":
		return r.JSON(w)
	}
	if !colored(w) {
		return r.Text(w)
	}
	var b bytes.Buffer
	if err := r.Text(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, paintReport(b.String()))
	return err
}

func writeJSON(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}
