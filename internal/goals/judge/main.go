// Command judge prints the ratios P1 to P11 from the result folders in a
// directory, one line each, and exits with 1 when one is missed:
//
//	go run ./internal/goals/judge [-scaling] [-o FILE] [-commit ID] DIR
//
// It needs no servers. scripts/bench-peers measures the folders.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/lockbench/lockbench/internal/goals"
)

// The exit codes of lockbench.
const (
	exitMissed = 1
	exitUsage  = 2
)

var errMissed = errors.New("missed")

func main() {
	err := judge(os.Stdout, os.Stderr, os.Args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errMissed):
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(exitMissed)
	}
	fmt.Fprintln(os.Stderr, "judge:", err)
	os.Exit(exitUsage)
}

func judge(w, wErr io.Writer, args []string) error {
	fl := flag.NewFlagSet("judge", flag.ContinueOnError)
	fl.SetOutput(wErr)
	scaling := fl.Bool("scaling", false, "judge the curve of scenario throughput instead, and show it over hosts")
	out := fl.String("o", "", "write the page of the figures to `FILE` too")
	commit := fl.String("commit", "", "`ID` of the commit that was measured, for the page")
	fl.Usage = func() {
		fmt.Fprintln(wErr, "usage: judge [-scaling] [-o FILE] [-commit ID] DIR")
		fl.PrintDefaults()
	}
	if err := fl.Parse(args); err != nil {
		return err
	}
	if fl.NArg() != 1 {
		return fmt.Errorf("one directory with result folders is needed, not %d", fl.NArg())
	}
	folders, err := goals.Load(fl.Arg(0))
	if err != nil {
		return err
	}
	wanted := goals.Goals()
	if *scaling {
		wanted = goals.ScalingGoals()
	}
	lines := goals.Judge(wanted, folders)
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	if *scaling {
		for _, l := range goals.Judge(goals.Hosts(), folders) {
			fmt.Fprintln(w, l.Shown())
		}
	}
	if *out != "" {
		if err := write(*out, folders, lines, *commit); err != nil {
			return err
		}
	}
	if n := goals.Missed(lines); n > 0 {
		return fmt.Errorf("%w: %d of %d", errMissed, n, len(lines))
	}
	return nil
}

func write(file string, folders []goals.Folder, lines []goals.Line, commit string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(goals.WritePage(f, folders, lines, commit), f.Close())
}
