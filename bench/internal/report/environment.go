package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/results"
)

func (r Report) where() string {
	m := r.Manifest
	parts := []string{m.Started.Format("2006-01-02 15:04 UTC"), fmt.Sprintf("%d cores", m.Machine.Cores), m.Machine.CPU, m.Machine.Kernel, m.Machine.Go}
	if m.Plan.Env == "compose" {
		parts = append(parts, "servers in containers")
	}
	if files := m.Machine.Files; m.Plan.Env == "local" && files != "" {
		parts = append(parts, "servers' data on "+files)
	}
	parts = append(parts, r.servers()...)
	return fmt.Sprintf("measured %s, seed %d, TTL %d ms", joined(parts...), m.Plan.Seed, m.Plan.TTLms)
}

// servers lists the products and versions of the measured servers, without repetitions.
func (r Report) servers() []string {
	shown := filter(r.Manifest.Subjects, func(s results.Subject) bool { return s.Server != "" && s.Scope != hostScope })
	return distinct(shown, func(s results.Subject) string { return s.Server })
}

// environment describes the machine and the programs of the run.
func (r Report) environment() grid {
	m := r.Manifest
	g := grid{Title: "environment", Columns: []gridColumn{{"what", false}, {"value", false}}}
	add := func(what, value string) {
		if value != "" {
			g.Rows = append(g.Rows, gridRow{word(what), word(value)})
		}
	}
	add("started", m.Started.Format("2006-01-02 15:04:05 UTC"))
	if m.Elapsed > 0 {
		add("took", (time.Duration(m.Elapsed) * time.Second).String())
	}
	add("state", string(m.State))
	add("machine", strings.Trim(fmt.Sprintf("%d cores, %s", m.Machine.Cores, m.Machine.CPU), ", "))
	add("system", strings.TrimSpace(m.Machine.OS+"/"+m.Machine.Arch+" "+m.Machine.Kernel))
	add("Go", m.Machine.Go)
	add("servers", m.Plan.Env)
	if len(m.Plan.OwnTargets) > 0 {
		add("servers of the caller", strings.Join(m.Plan.OwnTargets, ", "))
	}
	for _, s := range m.Subjects {
		if s.Kind != results.KindFloor {
			add(name(s), joined(s.Version, s.Server, s.Durability))
		}
	}
	add("TTL", (time.Duration(m.Plan.TTLms) * time.Millisecond).String())
	add("a cell", fmt.Sprintf("%d ms of warm-up, %d ms measured, %s", m.Plan.WarmUpms, m.Plan.Measurems, plural(m.Plan.Runs, "run")))
	add("mutual TLS to the plugins", map[bool]string{true: "on", false: "off"}[m.Plan.MTLS])
	add("lockbench", m.Lockbench)
	for _, b := range slices.Sorted(maps.Keys(m.Binaries)) {
		add("SHA-256 of "+b, m.Binaries[b])
	}
	return g
}

// command returns a command line that repeats the plan of the run. The run records no addresses,
// files and configuration values, so the command has placeholders that the user must replace.
func (r Report) command() string {
	p := r.Manifest.Plan
	args := []string{"lockbench", "run"}
	faults := distinct(r.Verdict.Cells, func(c check.Cell) string { return c.Fault })
	if len(faults) > 0 {
		args[1] = "faults"
	}
	if p.Quick {
		args = append(args, "--quick")
	}
	flag := func(name string, values ...string) {
		if text := strings.Join(values, ","); text != "" {
			args = append(args, "--"+name+"="+text)
		}
	}
	flag("backends", p.Backends...)
	for _, command := range p.Commands {
		flag("server", quoted(command))
	}
	for _, name := range p.Claims {
		flag("claims", name+"=FILE")
	}
	for _, key := range p.Config {
		flag("config", key+"=VALUE")
	}
	if !p.MTLS {
		flag("mtls", "off")
	}
	if len(faults) > 0 {
		flag("faults", faults...)
		return fmt.Sprintf("%s --runs=%d --seed=%d", strings.Join(args, " "), p.Runs, p.Seed)
	}
	flag("scenarios", p.Scenarios...)
	flag("baselines", p.Baselines...)
	flag("clients", texts(p.Clients)...)
	flag("hosts", texts(p.Hosts)...)
	flag("keys", texts(p.Keys)...)
	flag("hold", texts(p.Hold)...)
	flag("rtt", texts(p.RTT)...)
	flag("rate", given(p.Rate))
	flag("modes", p.Modes...)
	flag("candidates", given(p.Candidates))
	flag("tick", given(time.Duration(p.TickMs)*time.Millisecond))
	flag("for", given(time.Duration(p.ForMs)*time.Millisecond))
	if p.Stress {
		args = append(args, "--stress")
	}
	if measured := time.Duration(p.Measurems) * time.Millisecond; measured != results.MeasuredFor(p.Quick) {
		flag("measure", given(measured))
	}
	args = append(args, fmt.Sprintf("--runs=%d --ttl=%v --seed=%d", p.Runs, time.Duration(p.TTLms)*time.Millisecond, p.Seed))
	flag("parts", given(p.Parts))
	if p.Env != "local" {
		flag("env", p.Env)
	}
	for _, t := range p.OwnTargets {
		flag("target", t+"=ADDRESS")
	}
	return strings.Join(args, " ")
}

func given[T comparable](v T) string {
	if v == *new(T) {
		return ""
	}
	return fmt.Sprint(v)
}

func texts[T any](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// quoted puts text in quotes, so that a shell reads it as one word.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
