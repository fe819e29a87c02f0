package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/report"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	"github.com/lockbench/lockbench/internal/similar"
)

var errNoPlugins = Hinted(
	&EnvError{Err: errors.New("no lockplugin-* binary was found in --plugin-dir, beside the executable or on the PATH")},
	"make build puts lockbench and all plugins into bin/; in your own module: go get -tool github.com/lockbench/lockbench/plugins/NAME/lockplugin-NAME && go build -o bin/ tool",
)

type described struct {
	plugin.Found
	says   plugin.Description
	config driver.Config
	ttl    time.Duration
	ours   bool   // this run or "env up" started its servers
	note   string // says that the TTL is not the requested TTL
}

func (p Plan) describe(ctx context.Context) ([]described, error) {
	found, err := p.find(p.Backends)
	if err != nil {
		return nil, err
	}
	var names []string
	var out []described
	for _, f := range found {
		d, err := p.ask(ctx, f, p.of(f.Name))
		if err := cmp.Or(err, p.checkOther(ctx, f, d.config)); err != nil {
			return nil, err
		}
		names, out = append(names, f.Name), append(out, d)
	}
	if what, name := p.stray(names); name != "" {
		return nil, usagef("%s for %q, which is not measured%s", what, name, similar.Suggest(name, names))
	}
	return out, nil
}

// ask gets the plugin's description, and checks the TTL and the configuration against it.
func (p Plan) ask(ctx context.Context, f plugin.Found, cfg driver.Config) (d described, err error) {
	d = described{Found: f, config: cfg}
	if d.says, err = describe(ctx, f); err != nil {
		return d, err
	}
	d.ttl, d.note = p.ttlFor(d.says)
	return d, cmp.Or(checkTTL(d.says, d.ttl), checkConfig(d.says, cfg))
}

func describe(ctx context.Context, f plugin.Found) (plugin.Description, error) {
	d, err := plugin.Describe(ctx, f.Path)
	if err != nil {
		return d, &EnvError{Backend: f.Name, Err: err}
	}
	return d, nil
}

func (d described) takes(key string) *driver.Key {
	i := slices.IndexFunc(d.says.Keys, func(k driver.Key) bool { return k.Name == key })
	if i < 0 {
		return nil
	}
	return &d.says.Keys[i]
}

// ownPrefix adds a random text to the value of the key "prefix". So the run can later remove
// exactly what it wrote to the user's servers. ownPrefix returns "" if the plugin has no such key.
func (d described) ownPrefix() string {
	key := d.takes("prefix")
	if key == nil {
		return ""
	}
	d.config["prefix"] = cmp.Or(d.config["prefix"], key.Default) + "run-" + strings.ToLower(rand.Text()[:8]) + "_"
	return d.config["prefix"]
}

// checkConfig checks cfg against the keys that the plugin declares. A required key may be missing,
// because a throwaway server has no address before its start.
func checkConfig(d plugin.Description, cfg driver.Config) error {
	spec := driver.Spec{Name: d.Name, Keys: slices.Clone(d.Keys)}
	for i := range spec.Keys {
		spec.Keys[i].Required = false
	}
	if _, err := spec.CheckConfig(cfg); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// checkTTL checks, before lockbench starts a server, that the plugin accepts the TTL.
func checkTTL(d plugin.Description, ttl time.Duration) error {
	for _, bound := range []struct {
		text string
		fits func(time.Duration) bool
	}{
		{d.Properties.TTLMin, func(least time.Duration) bool { return ttl >= least }},
		{d.Properties.TTLMax, func(most time.Duration) bool { return ttl <= most }},
		{d.Properties.TTLStep, func(step time.Duration) bool { return step <= 0 || ttl%step == 0 }},
	} {
		if v, err := time.ParseDuration(bound.text); err == nil && !bound.fits(v) {
			return usagef("a TTL of %v does not fit %s: minimum %s, step %s, maximum %s",
				ttl, d.Name, d.Properties.TTLMin, d.Properties.TTLStep, d.Properties.TTLMax)
		}
	}
	return nil
}

// Plugins lists the plugins in the directories dirs, in lockbench's own directory, and in PATH. It
// searches in this order.
func Plugins(ctx context.Context, dirs []string) (*Outcome, error) {
	parts := foundPlugins(ctx, dirs)
	if len(parts) == 0 {
		return nil, errNoPlugins
	}
	o := new(Outcome)
	for _, p := range parts {
		if p.Usable {
			o.text += fmt.Sprintf("%-10s %s\n           %s, version %s\n", p.Name, p.doc, p.Path, p.Version)
		} else {
			o.text += fmt.Sprintf("%-10s cannot be used: %s\n           %s\n", p.Name, p.Problem, p.Path)
		}
	}
	return o, nil
}

// DescribePlugin shows what a plugin promises and which configuration it accepts.
func DescribePlugin(ctx context.Context, nameOrPath string, dirs []string) (*Outcome, error) {
	d, err := Servers{PluginDirs: dirs}.locate(ctx, nameOrPath)
	if err != nil {
		return nil, err
	}
	return &Outcome{data: d.says, text: d.text()}, nil
}

func (d described) text() string {
	var b strings.Builder
	p := d.says.Properties
	fmt.Fprintf(&b, "%s: %s\n\n", d.says.Name, d.says.Doc)
	for _, line := range [][2]string{
		{"binary", d.Path},
		{"version", d.says.Version},
		{"fencing", string(p.Fencing)},
		{"scope", string(p.Scope)},
		{"TTL", fmt.Sprintf("%s to %s in steps of %s", p.TTLMin, p.TTLMax, p.TTLStep)},
		{"first in, first out", fmt.Sprint(p.FIFO)},
		{"survives its plugin", fmt.Sprint(p.SurvivesPlugin)},
		{"capabilities", fmt.Sprint(p.Capabilities)},
	} {
		fmt.Fprintf(&b, "  %-20s %s\n", line[0], line[1])
	}
	fmt.Fprintf(&b, "\nconfiguration (--config %s.KEY=VALUE):\n", d.says.Name)
	for _, k := range d.says.Keys {
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
		fmt.Fprintf(&b, "  %-20s %-9s %s", k.Name, k.Type, k.Doc)
		if len(notes) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(notes, ", "))
		}
		b.WriteByte('\n')
	}
	for _, c := range d.says.Commands {
		fmt.Fprintf(&b, "\ncommand %s: %s\n", c.Name, c.Doc)
	}
	return b.String()
}

// part describes a plugin, or a program that lockbench needs to run servers.
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

// Examine lists all plugins with their descriptions, and the programs that servers need. It
// searches for plugins in the same places as [Plugins], and starts no server.
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
	case p.Err != nil:
		out.Problem, out.Advice = oneLine(p.Err), "start it, or run it by hand to see why"
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
		about := p.Version
		if p.For != "" {
			about = strings.TrimSpace(about + " for " + p.For)
		}
		if p.Usable {
			fmt.Fprintf(&b, "  ok  %-18s %s\n      %s\n", p.Name, about, p.Path)
		} else {
			fmt.Fprintf(&b, "  --  %-18s %s: %s\n      %s\n", p.Name, about, report.Wrap(p.Problem, 74, "      "), report.Wrap(p.Advice, 72, "      "))
		}
	}
	return b.String()
}

// ttlFor returns the TTL for a backend, and a note if this TTL is not the plan's TTL. If takeover
// is the only scenario, the plugin's minimum replaces a TTL that is too short.
func (p Plan) ttlFor(d plugin.Description) (ttl time.Duration, note string) {
	least, err := time.ParseDuration(d.Properties.TTLMin)
	if err != nil || p.TTL >= least || p.TTL < time.Millisecond || !slices.Equal(p.Scenarios, []string{"takeover"}) {
		return p.TTL, ""
	}
	return least, fmt.Sprintf("%s has a TTL of %v, its minimum, instead of %v", d.Name, least, p.TTL)
}

// checkOther checks the plugin's second build (see Plan.VS).
func (p Plan) checkOther(ctx context.Context, f plugin.Found, cfg driver.Config) error {
	if p.VS == "" {
		return nil
	}
	f.Path = filepath.Join(p.VS, filepath.Base(f.Path))
	if _, err := os.Stat(f.Path); err != nil {
		return usagef("--vs: there is no %s in %s", filepath.Base(f.Path), p.VS)
	}
	d, err := p.ask(ctx, f, cfg)
	if err == nil && d.says.Name != f.Name {
		return usagef("--vs: %s is a plugin for %q", f.Path, d.says.Name)
	}
	if err != nil {
		return fmt.Errorf("--vs: %w", err)
	}
	return nil
}
