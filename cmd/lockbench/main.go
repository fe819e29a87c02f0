package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

func main() {
	bench.Main()
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) { // a shell without job control ignores SIGINT for a command with &
		ends = append(ends, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	told := make(chan struct{})
	go func() {
		defer close(told)
		complain(os.Stderr, err)
	}()
	select {
	case <-told:
	case <-time.After(time.Second): // a full pipe without a reader must not keep the process alive
	}
	os.Exit(exitCode(err))
}

// Results go to stdout. Progress, warnings and hints go to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "lockbench",
		Short: "Measure distributed locks, and check their safety in the same run",
		Long: `Most people want one of three things:

  lockbench run --quick --baselines       which backend is fast and safe here
  lockbench lock redis NAME -- COMMAND    run a command under a lock
  lockbench locks list redis              who holds which lock

lockbench measures distributed locks through the plugins that ship them, beside
the libraries that you would use instead. It checks in the same run that no lock
was granted twice and that every fencing token was higher than those before it.

Exit codes: 0 ok, 1 internal error or conformance failure, 2 usage, 3 a server
or plugin cannot be used, 4 invalid run, 5 regression, 6 safety violation,
130 interrupted.`,
		Example: `  lockbench report results/20260102T030405Z
  lockbench locks list redis --target redis=10.0.0.7:6379
  lockbench completion bash > /etc/bash_completion.d/lockbench`,
		Version:       bench.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("lockbench {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	root.PersistentPreRunE = pluginDirs
	grouped(root, "Choose a backend:", runCommand(), reportCommand(), compareCommand(), checkCommand(), mergeCommand(), faultsCommand(), envCommand())
	grouped(root, "Use locks in shells and containers, and look at them:", lockCommand(), leadCommand(), locksCommand(), execCommand())
	grouped(root, "Write a backend:", pluginsCommand(), conformCommand())
	root.AddCommand(manCommand())
	completeAll(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	guideLost(root)
	return root
}

func grouped(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// guideLost makes the help command, and each command that only has subcommands, return an error for
// the name of an unknown subcommand.
func guideLost(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, parentOnly
	}
	if cmd.Name() == "help" {
		cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return parentOnly(about, rest)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	}
	for _, below := range cmd.Commands() {
		guideLost(below)
	}
}

// pluginDirs returns an error if a directory in --plugin-dir does not exist. Without this check,
// lockbench would measure a plugin from another directory.
func pluginDirs(cmd *cobra.Command, _ []string) error {
	dirs, _ := cmd.Flags().GetStringArray("plugin-dir") // empty if the command lacks the flag
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return usagef("--plugin-dir %s is not a directory", dir)
		}
	}
	return nil
}

// parentOnly shows help or, if there is an argument, returns an error that proposes a subcommand.
func parentOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	err := usagef("%s has no command %q%s", cmd.CommandPath(), args[0], bench.Suggest(args[0], names))
	if f := cmd.Flags().Lookup(args[0]); f != nil {
		return bench.Hinted(err, cmd.CommandPath()+" --"+f.Name)
	}
	return err
}

// noArgs refuses all arguments. If the first argument is a baseline's name, the error has a hint.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
	if slices.ContainsFunc(bench.Choices("baselines"), func(b bench.Named) bool { return b.Name == args[0] }) {
		return bench.Hinted(err, "a list of baselines needs an equals sign: --baselines="+args[0])
	}
	return err
}

// The needs function returns a check of the number of arguments. The error quotes the text in what.
func needs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return bench.Hinted(usagef("%s needs %s", cmd.CommandPath(), what), cmd.UseLine())
		}
		return nil
	}
}

func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return usagef("%s has no flag %s%s", cmd.CommandPath(), name, bench.Suggest(name, names))
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		f := invalid.GetFlag()
		if c, ok := f.Value.(*choice); ok {
			return usagef("--%s has no value %q%s", f.Name, invalid.GetValue(), bench.Suggest(invalid.GetValue(), c.words))
		}
		return usagef("--%s has no value %q; it takes %s", f.Name, invalid.GetValue(), takes[f.Value.Type()])
	}
	return bench.Hinted(usagef("%v", err), cmd.CommandPath()+" --help")
}

// The takes map describes, for each of pflag's types of flags, the values that the flag accepts.
var takes = map[string]string{
	"bool":          "true or false",
	"int":           "a whole number",
	"intSlice":      "whole numbers, with commas between them",
	"durationSlice": "durations such as 500us, with commas between them",
	"float64":       "a number",
	"uint64":        "a whole number of at least 0",
	"duration":      "a duration such as 10s or 500ms",
}

const (
	exitOK          = 0
	exitInternal    = 1 // also for a failed conformance check
	exitUsage       = 2
	exitEnvironment = 3
	exitInvalid     = 4
	exitRegression  = 5
	exitUnsafe      = 6
	exitInterrupted = 130
)

// exitCode returns the exit code for err. If err wraps several errors, the first case decides.
func exitCode(err error) int {
	var environment *bench.EnvError
	var invalid *bench.InvalidError
	var status bench.StatusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, bench.ErrUnsafe):
		return exitUnsafe
	case errors.Is(err, bench.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case bench.IsUsage(err):
		return exitUsage
	case errors.Is(err, bench.ErrRegression):
		return exitRegression
	case errors.As(err, &environment):
		return exitEnvironment
	case errors.As(err, &invalid):
		return exitInvalid
	}
	return exitInternal
}

func usagef(format string, args ...any) error {
	return &bench.UsageError{Msg: fmt.Sprintf(format, args...)}
}

// complain writes a line with the error, and a second line if the error has a hint.
func complain(w io.Writer, err error) {
	var status bench.StatusError
	if err == nil || errors.As(err, &status) {
		return
	}
	fmt.Fprintf(w, "lockbench: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if hint := bench.Hint(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
}
