package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

func serversVar(fl *pflag.FlagSet, s *bench.Servers) {
	fl.StringArrayVar(&s.Targets, "target", nil, "your server: `BACKEND=ADDRESS`, =@FILE or =env:VARIABLE")
	configVar(fl, &s.Config)
	pluginDirVar(fl, &s.PluginDirs)
}

// startedVar adds the flags of commands that start servers and processes that use them.
func startedVar(fl *pflag.FlagSet, s *bench.Servers) {
	fl.StringArrayVar(&s.Commands, "server", nil, "start servers: `BACKEND=COMMAND` {port} {dir}")
	choiceVar(fl, &s.MTLS, "mtls", "on", "mutual TLS between host and plugin, `on|off`", "on", "off")
}

func configVar(fl *pflag.FlagSet, config *[]string) {
	fl.StringArrayVar(config, "config", nil, "configure a backend: `BACKEND.KEY=VALUE` (see plugins describe)")
}

func pluginDirVar(fl *pflag.FlagSet, dirs *[]string) {
	fl.StringArrayVar(dirs, "plugin-dir", nil, "look for plugins in `DIR` first, then beside lockbench and on the PATH")
}

var formats = []string{"text", "md", "json"}

func show(o *bench.Outcome, format string, cmd *cobra.Command) error {
	if o == nil {
		return nil
	}
	return o.Write(cmd.OutOrStdout(), format)
}

// showing makes cmd show the outcome of do as text or, if the user says so, as JSON.
func showing(cmd *cobra.Command, do func(cmd *cobra.Command, args []string) (*bench.Outcome, error)) *cobra.Command {
	var format string
	choiceVar(cmd.Flags(), &format, "format", "text", "output: text or json", "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		shown, err := do(cmd, args)
		return errors.Join(show(shown, format, cmd), err)
	}
	return cmd
}

// played has the flags of run and faults that say what they show.
type played struct {
	format  string
	verbose bool
}

// play calls do, and shows its progress and its outcome.
func (f played) play(cmd *cobra.Command, do func(bench.Options) (*bench.Outcome, error)) error {
	stderr := cmd.ErrOrStderr()
	progress := newProgress(stderr, "starting servers and plugins")
	log := slog.DiscardHandler
	if f.verbose {
		log = slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug})
	}
	shown, err := do(bench.Options{Progress: progress, Lines: progress.above(stderr), Verbose: f.verbose, Log: slog.New(log)})
	return showRun(shown, f.format, cmd, progress, err)
}

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

// choice is a flag whose value is one of a few words.
type choice struct {
	word  *string
	usual string // the default value; need not be one of the words
	words []string
}

func choiceVar(fl *pflag.FlagSet, word *string, name, usual, usage string, words ...string) {
	*word = usual
	fl.Var(&choice{word, usual, words}, name, usage)
}

// Set implements pflag.Value.
func (c *choice) Set(word string) error {
	if word != c.usual && !slices.Contains(c.words, word) {
		return errors.New("unknown") // flagError lists the known words
	}
	*c.word = word
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.word }

// Type implements pflag.Value. Its result makes the help show a choice like a flag that takes text.
func (c *choice) Type() string { return "string" }
