package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func envDoctorCommand() *cobra.Command {
	var dirs []string
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which plugins, servers and tools are found, and what to do about the others",
		Long: `doctor starts no server. It looks for plugins as a run does, asks each what it
is, and looks for the programs that local servers and containers are made of.
What is missing costs the backends that need it, nothing else; it exits with 3
when there is no plugin that can be used.`,
		Example: `  lockbench env doctor
  lockbench env doctor --plugin-dir ./bin --format json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return examine(cmd.Context(), dirs, format, cmd.OutOrStdout())
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "output: text or json", "text", "json")
	cmd.Flags().StringArrayVar(&dirs, "plugin-dir", nil, "look for plugins in `DIR` first, then beside lockbench and on the PATH")
	return cmd
}

// part is one thing that was looked for.
type part struct {
	Kind    string `json:"kind"` // "plugin", "program"
	Name    string `json:"name"`
	For     string `json:"for,omitempty"`
	Usable  bool   `json:"usable"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Problem string `json:"problem,omitempty"`
	Advice  string `json:"advice,omitempty"`
}

func examine(ctx context.Context, dirs []string, format string, w io.Writer) error {
	var parts []part
	usable := 0
	found := plugin.Discover(dirs)
	for _, f := range found {
		p := part{Kind: "plugin", Name: f.Name, Path: f.Path, Usable: true}
		if d, err := bench.Describe(ctx, f); err != nil {
			p.Usable, p.Problem, p.Advice = false, oneLine(err), "build it again with make build, or take it out of the directory"
		} else {
			p.Version = d.Version
			usable++
		}
		parts = append(parts, p)
	}
	for _, program := range kinds.Programs(ctx) {
		parts = append(parts, partOf(program))
	}
	if format == "json" {
		if err := writeJSON(w, parts); err != nil {
			return err
		}
	} else {
		showParts(w, parts)
	}
	switch {
	case usable > 0:
		return nil
	case len(found) > 0:
		return &bench.EnvError{Err: errors.New("none of the plugins can be used")}
	}
	return bench.ErrNoPlugins
}

func partOf(p servers.Program) part {
	out := part{Kind: "program", Name: p.Name, For: p.For, Usable: p.Err == nil, Version: p.Version, Path: p.Path}
	var missing *servers.NotInstalledError
	switch {
	case errors.As(p.Err, &missing):
		out.Problem, out.Advice = "not installed", missing.How()
		if p.Built != "" {
			out.Advice = p.Built + "; " + out.Advice
		}
		if !strings.HasPrefix(p.For, "--env") {
			out.Advice += "; or name a server of yours with --target"
		}
	case errors.Is(p.Err, servers.ErrNoDaemon):
		out.Problem, out.Advice = oneLine(p.Err), "start it, or get the right to use it; local servers need none"
	case p.Err != nil:
		out.Problem, out.Advice = oneLine(p.Err), "run it by hand to see why"
	}
	return out
}

func oneLine(err error) string { return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ") }

func showParts(w io.Writer, parts []part) {
	kind := ""
	for _, p := range parts {
		if p.Kind != kind {
			kind = p.Kind
			fmt.Fprintf(w, "%ss\n", kind)
		}
		state := "ok"
		if !p.Usable {
			state = "--"
		}
		about := p.Version
		if p.For != "" {
			about = strings.TrimSpace(about + " for " + p.For)
		}
		if p.Usable {
			fmt.Fprintf(w, "  %s  %-18s %s\n      %s\n", state, p.Name, about, p.Path)
			continue
		}
		fmt.Fprintf(w, "  %s  %-18s %s: %s\n      %s\n", state, p.Name, about, wrap(p.Problem, 74, 6), wrap(p.Advice, 72, 6))
	}
}
