package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/scenario"
)

func scenarioHelp() string {
	var b strings.Builder
	for _, s := range scenario.All() {
		fmt.Fprintf(&b, "  %-18s%s\n", s.Name, wrap(s.Doc, 60, 20))
	}
	fmt.Fprintf(&b, "  %-18s%s\n", bench.SafetyScenario, wrap(bench.SafetyDoc, 60, 20))
	fmt.Fprintf(&b, "  %-18s%s\n", bench.ExploreScenario, wrap(bench.ExploreDoc, 60, 20))
	b.WriteString("\nModes of takeover:\n")
	for _, m := range scenario.Modes() {
		fmt.Fprintf(&b, "  %-18s%s\n", m, wrap(scenario.ModeDoc(m), 58, 20))
	}
	return b.String()
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

func baselineHelp() string {
	var b strings.Builder
	for _, bl := range baseline.All() {
		fmt.Fprintf(&b, "  %-19s%s\n", bl.Name, wrap(bl.Doc, 58, 21))
	}
	return strings.TrimRight(b.String(), "\n")
}

// noArgs refuses arguments, and knows where one usually comes from.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
	if _, ok := baseline.ByName(args[0]); ok {
		return hinted(err, "a list of baselines needs an equals sign: --baselines="+args[0])
	}
	return err
}
