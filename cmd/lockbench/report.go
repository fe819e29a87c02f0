package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

func reportCommand() *cobra.Command {
	var format, out string
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Print a saved run, and write it as an HTML page",
		Long: `report computes tables and verdict from a result folder, without servers. It
prints them, and writes one self-contained HTML page; with -o - it prints the
page instead.`,
		Example: `  lockbench report results/20260102T030405Z
  lockbench report results/20260102T030405Z --format md -o page.html
  lockbench report results/20260102T030405Z -o - > page.html`,
		Args:              needs(1, 1, "a result folder"),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "-" && cmd.Flags().Changed("format") {
				return bench.Hinted(usagef("-o - prints the HTML page, so there is no room for --format %s", format),
					"write the page to a file, or run report twice")
			}
			shown, page, err := bench.Report(args[0], out)
			if shown == nil {
				return err
			}
			if out == "-" {
				return shown.Write(cmd.OutOrStdout(), "html")
			}
			if err = errors.Join(show(shown, format, cmd), err); err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "page in %s\n", page)
			}
			return err
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "what to print: text, md or json", formats...)
	cmd.Flags().StringVarP(&out, "output", "o", "", "HTML `FILE`, - for standard output (default DIR/"+bench.PageFile+")")
	return cmd
}
