package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/explore"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/scenario"
)

// candidates are words that a shell may complete.
type candidates func(cmd *cobra.Command) []cobra.Completion

func words(all ...string) candidates {
	return func(*cobra.Command) []cobra.Completion { return all }
}

// backendNames are those of the plugins that can be found.
func backendNames(cmd *cobra.Command) []cobra.Completion {
	dirs, _ := cmd.Flags().GetStringArray("plugin-dir") // without the flag, the usual places
	var out []cobra.Completion
	for _, f := range plugin.Discover(dirs) {
		out = append(out, cobra.CompletionWithDesc(f.Name, f.Path))
	}
	return out
}

func scenarioNames(*cobra.Command) []cobra.Completion {
	out := []cobra.Completion{cobra.CompletionWithDesc("all", "every scenario")}
	for _, s := range scenario.All() {
		out = append(out, cobra.CompletionWithDesc(s.Name, s.Doc))
	}
	return append(out, cobra.CompletionWithDesc(bench.SafetyScenario, bench.SafetyDoc), cobra.CompletionWithDesc(bench.ExploreScenario, bench.ExploreDoc))
}

func baselineNames(*cobra.Command) []cobra.Completion {
	out := []cobra.Completion{cobra.CompletionWithDesc("all", "every baseline")}
	for _, b := range baseline.All() {
		out = append(out, cobra.CompletionWithDesc(b.Name, b.Doc))
	}
	return out
}

// prefixed are the backends as --target and --config name them first.
func prefixed(sign string) candidates {
	return func(cmd *cobra.Command) []cobra.Completion {
		var out []cobra.Completion
		for _, b := range backendNames(cmd) {
			name, _, _ := strings.Cut(b, "\t")
			out = append(out, name+sign)
		}
		return out
	}
}

// one completes a flag or argument that takes one word.
func (c candidates) one(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c(cmd), cobra.ShellCompDirectiveNoFileComp
}

// path completes the first argument by a name, or by a file.
func (c candidates) path(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c(cmd), cobra.ShellCompDirectiveDefault
}

// argument completes the first argument only.
func (c candidates) argument(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.one(cmd, args, toComplete)
}

// open completes a word that goes on.
func (c candidates) open(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	out, directive := c.one(cmd, args, toComplete)
	return out, directive | cobra.ShellCompDirectiveNoSpace
}

// list completes the last word of a list with commas, and offers none twice.
func (c candidates) list(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := toComplete[:strings.LastIndexByte(toComplete, ',')+1]
	chosen := strings.Split(before, ",")
	var out []cobra.Completion
	for _, word := range c(cmd) {
		if name, _, _ := strings.Cut(word, "\t"); !slices.Contains(chosen, name) {
			out = append(out, before+word)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// directories completes result folders and other directories.
func directories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completions are those of the flags, by name; a flag has the same meaning in
// every command that has it.
var completions = map[string]cobra.CompletionFunc{
	"backends":   candidates(backendNames).list,
	"scenarios":  candidates(scenarioNames).list,
	"baselines":  candidates(baselineNames).list,
	"modes":      words(append([]string{"all"}, scenario.Modes()...)...).list,
	"target":     prefixed("=").open,
	"config":     prefixed(".").open,
	"env":        words(bench.Environments()...).one,
	"faults":     words(fault.Names()...).list,
	"actions":    words(explore.ActionNames()...).list,
	"mtls":       words("on", "off").one,
	"plugin-dir": directories,
	"vs":         directories,
}

// arguments are the completions of arguments, by command.
var arguments = map[string]cobra.CompletionFunc{
	"lockbench check":            directories,
	"lockbench report":           directories,
	"lockbench compare":          directories,
	"lockbench merge":            directories,
	"lockbench conform":          candidates(backendNames).path,
	"lockbench plugins describe": candidates(backendNames).path,
	"lockbench locks list":       candidates(backendNames).argument,
	"lockbench locks inspect":    candidates(backendNames).argument,
	"lockbench locks break":      candidates(backendNames).argument,
}

// completeAll gives every command below root its completions.
func completeAll(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		completeAll(cmd)
		if f, ok := arguments[cmd.CommandPath()]; ok {
			cmd.ValidArgsFunction = f
		}
		for name, f := range completions {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, f) // fails only for an unknown flag
			}
		}
		if f := cmd.Flags().Lookup("format"); f != nil {
			// Not every command has all of them; its usage says which.
			has := slices.DeleteFunc(slices.Clone(formats), func(format string) bool { return !strings.Contains(f.Usage, format) })
			_ = cmd.RegisterFlagCompletionFunc("format", words(has...).one)
		}
	}
}
