package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

// formats are the values of --format.
var formats = []string{"text", "md", "json"}

// written is what can be printed in several formats.
type written interface {
	Write(w io.Writer, format string) error
}

func write(s written, format string, w io.Writer) error {
	if format != "text" || !colored(w) {
		return s.Write(w, format)
	}
	var b bytes.Buffer
	if err := s.Write(&b, format); err != nil {
		return err
	}
	_, err := io.WriteString(w, paintReport(b.String()))
	return err
}

// show prints what came of a plan, if anything did, and where it is.
func show(o *bench.Outcome, format string, cmd *cobra.Command) error {
	if o == nil {
		return nil
	}
	if o.Dir == "" {
		return o.Write(cmd.OutOrStdout(), format)
	}
	if err := write(o, format, cmd.OutOrStdout()); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "results in %s; lockbench report %s makes a page of them\n", o.Dir, o.Dir)
	return nil
}
