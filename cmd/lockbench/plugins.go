package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin"
)

func pluginsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List and describe the plugins that are found, or begin a new one",
		Example: `  lockbench plugins list
  lockbench plugins describe redis
  lockbench plugins new mybackend`,
	}
	cmd.AddCommand(pluginsListCommand(), pluginsDescribeCommand(), pluginsNewCommand())
	return cmd
}

func pluginsListCommand() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the plugins in --plugin-dir, beside lockbench and on the PATH, with their versions",
		Example: `  lockbench plugins list --plugin-dir ./bin`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := bench.FindPlugins(bench.Plan{PluginDirs: dirs})
			if err != nil {
				return err
			}
			for _, f := range found {
				where := f.Path
				d, err := bench.Describe(cmd.Context(), f)
				if err != nil {
					d.Doc = "cannot be used: " + strings.ReplaceAll(err.Error(), "\n", "; ")
				} else {
					where += ", version " + d.Version
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n           %s\n", f.Name, d.Doc, where)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "plugin-dir", nil, "look for plugins here first")
	return cmd
}

func pluginsDescribeCommand() *cobra.Command {
	var dirs []string
	var format string
	cmd := &cobra.Command{
		Use:   "describe NAME|PATH",
		Short: "Show what a plugin claims and which configuration it takes",
		Example: `  lockbench plugins describe redis
  lockbench plugins describe ./bin/lockplugin-mine --format json`,
		Args:              oneArg("plugin"),
		ValidArgsFunction: firstBackend(cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, d, err := resolved(cmd.Context(), args[0], dirs)
			if err != nil {
				return err
			}
			if format == "json" {
				return writeJSON(cmd.OutOrStdout(), d)
			}
			describe(cmd.OutOrStdout(), d, f.Path)
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "plugin-dir", nil, "look for plugins here first")
	choiceVar(cmd.Flags(), &format, "format", "text", "output: text or json", "text", "json")
	return cmd
}

// resolved finds a plugin by name, or takes a path as it is, and asks it what
// it claims. A binary may have any name: which backend it is, it says itself.
// Until a binary is asked, its file names the backend.
func resolved(ctx context.Context, nameOrPath string, dirs []string) (plugin.Found, plugin.Description, error) {
	isPath := strings.ContainsRune(nameOrPath, '/')
	found := plugin.Found{Name: strings.TrimPrefix(filepath.Base(nameOrPath), "lockplugin-"), Path: nameOrPath}
	if !isPath {
		all, err := bench.FindPlugins(bench.Plan{Backends: []string{nameOrPath}, PluginDirs: dirs})
		if err != nil {
			return found, plugin.Description{}, err
		}
		found = all[0]
	}
	d, err := bench.Describe(ctx, found)
	if err == nil && isPath {
		found.Name = d.Name
	}
	return found, d, err
}

func describe(w io.Writer, d plugin.Description, path string) {
	p := d.Properties
	fmt.Fprintf(w, "%s: %s\n\n", d.Name, d.Doc)
	for _, line := range [][2]string{
		{"binary", path},
		{"version", d.Version},
		{"fencing", string(p.Fencing)},
		{"scope", string(p.Scope)},
		{"TTL", fmt.Sprintf("%s to %s in steps of %s", p.TTLMin, p.TTLMax, p.TTLStep)},
		{"first in, first out", fmt.Sprint(p.FIFO)},
		{"survives its plugin", fmt.Sprint(p.SurvivesPlugin)},
		{"capabilities", fmt.Sprint(p.Capabilities)},
	} {
		fmt.Fprintf(w, "  %-20s %s\n", line[0], line[1])
	}
	fmt.Fprintf(w, "\nconfiguration (--config %s.KEY=VALUE):\n", d.Name)
	for _, k := range d.Keys {
		var notes []string
		if k.Required {
			notes = append(notes, "required")
		}
		if k.Secret {
			notes = append(notes, "secret")
		}
		if k.Default != "" {
			notes = append(notes, "default "+k.Default)
		}
		fmt.Fprintf(w, "  %-20s %-9s %s", k.Name, k.Type, k.Doc)
		if len(notes) > 0 {
			fmt.Fprintf(w, " (%s)", strings.Join(notes, ", "))
		}
		fmt.Fprintln(w)
	}
	for _, c := range d.Commands {
		fmt.Fprintf(w, "\ncommand %s: %s\n", c.Name, c.Doc)
	}
}
