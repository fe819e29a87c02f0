package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/report"
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
		Args:              oneArg("result folder"),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "-" && cmd.Flags().Changed("format") {
				return hinted(usagef("-o - prints the HTML page, so there is no room for --format %s", format),
					"write the page to a file, or run report twice")
			}
			r, err := report.Load(args[0])
			if err != nil {
				return err
			}
			if out == "-" {
				return r.HTML(cmd.OutOrStdout())
			}
			if out == "" {
				out = filepath.Join(args[0], record.ReportFile)
			}
			if err := writePage(r, out); err != nil {
				return err
			}
			if err := write(r, format, cmd.OutOrStdout()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "page in %s\n", out)
			return nil
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "what to print: text, md or json", formats...)
	cmd.Flags().StringVarP(&out, "output", "o", "", "HTML `FILE`, - for standard output (default DIR/"+record.ReportFile+")")
	return cmd
}

func writePage(r report.Report, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return usagef("the page cannot be written: %v", err)
	}
	return errors.Join(r.HTML(f), f.Close())
}
