package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin"
)

type candidates func(cmd *cobra.Command) []cobra.Completion

func backendNames(cmd *cobra.Command) []cobra.Completion {
	dirs, _ := cmd.Flags().GetStringArray("plugin-dir") // a command without the flag searches the usual places
	var out []cobra.Completion
	for _, f := range plugin.Discover(dirs) {
		out = append(out, cobra.CompletionWithDesc(f.Name, f.Path))
	}
	return out
}

// choices returns the words that the given flag accepts. If the text in every is not empty, it also
// returns the word "all", with this text as its description.
func choices(flag, every string) candidates {
	var out []cobra.Completion
	if every != "" {
		out = append(out, cobra.CompletionWithDesc("all", every))
	}
	for _, n := range bench.Choices(flag) {
		out = append(out, cobra.CompletionWithDesc(n.Name, n.Does))
	}
	return func(*cobra.Command) []cobra.Completion { return out }
}

// prefixed completes names of backends. It puts the text in sign, but no space, after each name.
func prefixed(sign string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		for _, b := range backendNames(cmd) {
			name, _, _ := strings.Cut(b, "\t")
			out = append(out, name+sign)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// firstBackend completes the first argument with backends, and with files if directive says so.
func firstBackend(directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return backendNames(cmd), directive
	}
}

// completeFor limits the time for which a shell waits for the names of locks.
const completeFor = 2 * time.Second

// lockNames completes the second argument with the locks held in the store that the flags name.
func lockNames(s *bench.Servers) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return firstBackend(cobra.ShellCompDirectiveNoFileComp)(cmd, args, toComplete)
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeFor)
		defer cancel()
		return bench.Locks{Servers: *s, Backend: args[0]}.Names(ctx, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// The list method completes the last word of a comma-separated list. It omits words already chosen.
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

func (c candidates) files(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	out, _ := c.list(cmd, args, toComplete)
	return out, cobra.ShellCompDirectiveDefault
}

func directories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completions maps flags to their completion functions. A flag means the same in all commands.
var completions = map[string]cobra.CompletionFunc{
	"backends":   candidates(backendNames).list,
	"scenarios":  choices("scenarios", "every scenario").list,
	"baselines":  choices("baselines", "every baseline").list,
	"modes":      choices("modes", "every mode").list,
	"target":     prefixed("="),
	"config":     prefixed("."),
	"faults":     choices("faults", "").list,
	"actions":    choices("actions", "").list,
	"replay":     choices("replay", "every one").files,
	"plugin-dir": directories,
	"vs":         directories,
}

func completeAll(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		completeAll(cmd)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			complete := completions[f.Name]
			if c, ok := f.Value.(*choice); ok {
				complete = cobra.FixedCompletions(c.words, cobra.ShellCompDirectiveNoFileComp)
			}
			if complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails only for an unknown flag
			}
		})
	}
}

// Packagers use this hidden command to write manual pages and completions.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write manual pages and completions, in the places of a prefix",
		Long:    `man writes share/man/man1 and the completions of bash, zsh and fish below DIR.`,
		Example: `  lockbench man /usr/local`,
		Hidden:  true,
		Args:    needs(1, 1, "a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, share := cmd.Root(), filepath.Join(args[0], "share")
			pages := filepath.Join(share, "man", "man1")
			if err := os.MkdirAll(pages, 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true // without a date, the same sources give the same pages
			header := &doc.GenManHeader{Section: "1", Source: "lockbench " + bench.Version(), Manual: "lockbench"}
			return errors.Join(doc.GenManTree(root, header, pages),
				completion(filepath.Join(share, "bash-completion", "completions", "lockbench"), func(path string) error { return root.GenBashCompletionFileV2(path, true) }),
				completion(filepath.Join(share, "zsh", "site-functions", "_lockbench"), root.GenZshCompletionFile),
				completion(filepath.Join(share, "fish", "vendor_completions.d", "lockbench.fish"), func(path string) error { return root.GenFishCompletionFile(path, true) }))
		},
	}
}

func completion(path string, write func(path string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return write(path)
}
