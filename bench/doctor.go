package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

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
	doc     string
}

// Examine looks for plugins in dirs and where a run does, asks each what it is, and
// looks for the programs that servers are made of. It starts none.
func Examine(ctx context.Context, dirs []string) (*Outcome, error) {
	parts := foundPlugins(ctx, dirs)
	plugins, usable := len(parts), slices.ContainsFunc(parts, func(p part) bool { return p.Usable })
	for _, program := range kinds.Programs(ctx) {
		parts = append(parts, partOf(program))
	}
	o := &Outcome{data: parts, text: partsText(parts)}
	switch {
	case usable:
		return o, nil
	case plugins > 0:
		return o, &EnvError{Err: errors.New("none of the plugins can be used")}
	}
	return o, errNoPlugins
}

// foundPlugins asks each plugin that is found what it is.
func foundPlugins(ctx context.Context, dirs []string) (parts []part) {
	for _, f := range plugin.Discover(dirs) {
		p := part{Kind: "plugin", Name: f.Name, Path: f.Path, Usable: true}
		if d, err := describe(ctx, f); err != nil {
			p.Usable, p.Problem, p.Advice = false, oneLine(err), "build it again with make build, or take it out of the directory"
		} else {
			p.Version, p.doc = d.Version, d.Doc
		}
		parts = append(parts, p)
	}
	return parts
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

func partsText(parts []part) string {
	var b strings.Builder
	kind := ""
	for _, p := range parts {
		if p.Kind != kind {
			kind = p.Kind
			fmt.Fprintf(&b, "%ss\n", kind)
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
			fmt.Fprintf(&b, "  %s  %-18s %s\n      %s\n", state, p.Name, about, p.Path)
			continue
		}
		fmt.Fprintf(&b, "  %s  %-18s %s: %s\n      %s\n", state, p.Name, about, wrap(p.Problem, 74, 6), wrap(p.Advice, 72, 6))
	}
	return b.String()
}
