package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/record"
)

func checkCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Judge the safety of a saved run again",
		Long: `check reads the recorded attempts of a result folder and looks for two holders
at once and for tokens that do not rise, and judges the rounds of the safety
scenario. It needs no server. It exits with 6 on a violation of a backend; those
of baselines, of controls, and what is documented are shown and do not count.`,
		Example: `  lockbench check results/20260102T030405Z
  lockbench check results/20260102T030405Z --format json`,
		Args:              oneArg("result folder"),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := record.ReadManifest(args[0]); err != nil {
				return err
			}
			v, err := check.Dir(args[0])
			if err != nil {
				return err
			}
			if err := showVerdict(v, format, cmd.OutOrStdout()); err != nil {
				return err
			}
			switch {
			case v.Unsafe() > 0:
				return fmt.Errorf("%w: %d in %d grants", bench.ErrUnsafe, v.Unsafe(), v.Granted())
			case v.Granted() == 0:
				return &bench.InvalidError{Err: errors.New("invalid run: nothing was granted, so nothing was checked")}
			}
			return bench.Invalid(v)
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "output: text or json", "text", "json")
	return cmd
}

func showVerdict(v check.Verdict, format string, w io.Writer) error {
	if format == "json" {
		doc := struct {
			Granted    int             `json:"grants_checked"`
			Unsafe     int             `json:"violations_counted"`
			Truncated  bool            `json:"truncated"`
			Subjects   []check.Subject `json:"subjects"`
			Violations []string        `json:"violations"`
			Safety     []check.Cell    `json:"safety,omitempty"`
		}{v.Granted(), v.Unsafe(), v.Truncated != nil, v.Subjects, []string{}, v.Cells}
		for _, x := range v.Violations {
			doc.Violations = append(doc.Violations, x.String())
		}
		return writeJSON(w, doc)
	}
	for _, s := range v.Subjects {
		if s.Attempts == 0 {
			continue // a floor
		}
		tokens := fmt.Sprintf("%d tokens that do not rise", s.Tokens)
		if s.Fencing == "none" {
			tokens = "no tokens"
		}
		fmt.Fprintf(w, "%-18s %d attempts, %d grants: %d overlaps, %s\n", s.Backend, s.Attempts, s.Granted, s.Overlaps, tokens)
	}
	for _, x := range v.Violations {
		fmt.Fprintln(w, x)
	}
	for _, c := range v.Cells {
		fmt.Fprintf(w, "%-18s %-22s %s\n", c.Backend, c.Fault, c.Class)
		for _, x := range c.Violations {
			fmt.Fprintf(w, "  %s\n", x)
		}
	}
	if v.Truncated != nil {
		fmt.Fprintln(w, v.Truncated)
	}
	return nil
}
