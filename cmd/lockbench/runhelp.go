package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

// scenarioHelp says what each scenario measures, up to the first stop.
func scenarioHelp() string {
	var b strings.Builder
	for _, s := range bench.Scenarios() {
		does, _, _ := strings.Cut(s.Does, ":")
		does, _, _ = strings.Cut(does, ";")
		fmt.Fprintf(&b, "  %-12s%s\n", s.Name, wrap(does, 66, 14))
	}
	return strings.TrimRight(b.String(), "\n")
}

// wrap breaks text into lines of about width characters, all but the first
// indented.
func wrap(text string, width, indent int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case column+len(word) > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		case i > 0:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		column += len(word) + 1
	}
	return b.String()
}

// noArgs refuses arguments, and knows where one usually comes from.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
	if slices.ContainsFunc(bench.Baselines(), func(b bench.Named) bool { return b.Name == args[0] }) {
		return hinted(err, "a list of baselines needs an equals sign: --baselines="+args[0])
	}
	return err
}
