package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

// formats are the values of --format.
var formats = []string{"text", "md", "json"}

// show prints what came of a plan, if anything did; a report in colors.
func show(o *bench.Outcome, format string, cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	if o == nil {
		return nil
	}
	if o.Dir == "" || format != "text" || !colored(w) {
		return o.Write(w, format)
	}
	var b bytes.Buffer
	if err := o.Write(&b, format); err != nil {
		return err
	}
	_, err := io.WriteString(w, paintReport(b.String()))
	return err
}

// showRun ends the progress of a run that ended with err, and shows what came of it
// and where it is.
func showRun(o *bench.Outcome, format string, cmd *cobra.Command, p *progress, err error) error {
	p.End()
	unshown := show(o, format, cmd)
	if o != nil && o.Dir != "" && unshown == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "results in %s; lockbench report %s makes a page of them\n", o.Dir, o.Dir)
	}
	return errors.Join(unshown, err)
}

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

// choice is the value of a flag that takes one of a few words.
type choice struct {
	word  *string
	words []string
}

// choiceVar adds a flag that takes one of words to fl.
func choiceVar(fl *pflag.FlagSet, word *string, name, usual, usage string, words ...string) {
	*word = usual
	fl.Var(&choice{word, words}, name, usage)
}

// Set implements pflag.Value.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return errors.New("unknown") // flagError says what there is
	}
	*c.word = word
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.word }

// Type implements pflag.Value: help shows it as it shows other words.
func (c *choice) Type() string { return "string" }
