package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/results"
)

// where says on what and when it was measured.
func (r Report) where() string {
	m := r.Manifest
	parts := []string{m.Started.Format("2006-01-02 15:04 UTC"), fmt.Sprintf("%d cores", m.Machine.Cores), m.Machine.CPU, m.Machine.Kernel, m.Machine.Go}
	if m.Plan.Env == "compose" {
		parts = append(parts, "servers in containers")
	}
	parts = append(parts, r.servers()...)
	return fmt.Sprintf("measured %s, seed %d, TTL %d ms", strings.Join(filter(parts, said), ", "), m.Plan.Seed, m.Plan.TTLms)
}

func said(text string) bool { return text != "" }

// servers lists the products and versions that were measured, once each.
func (r Report) servers() []string {
	shown := filter(r.Manifest.Subjects, func(s results.Subject) bool { return s.Server != "" && s.Scope != hostScope })
	return distinct(shown, func(s results.Subject) string { return s.Server })
}

// environment is what the run ran on and with.
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
			add(name(s), strings.Join(filter([]string{s.Version, s.Server, s.Durability}, said), ", "))
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

// measuredByDefault is the measured time of a cell, with --quick or without.
var measuredByDefault = map[bool]time.Duration{false: time.Second, true: 150 * time.Millisecond}

// command is the command line that carries out the same plan again. Addresses
// are not recorded, so the reader fills them in.
func (r Report) command() string {
	p := r.Manifest.Plan
	args := []string{"lockbench", "run"}
	faults := r.faults()
	if len(faults) > 0 {
		args[1] = "faults"
	}
	if p.Quick {
		args = append(args, "--quick")
	}
	list := func(flag string, values []string) {
		if len(values) > 0 {
			args = append(args, "--"+flag+"="+strings.Join(values, ","))
		}
	}
	list("backends", p.Backends)
	if len(faults) > 0 {
		list("faults", faults)
		return strings.Join(append(args, "--runs="+strconv.Itoa(p.Runs), "--seed="+strconv.FormatUint(p.Seed, 10)), " ")
	}
	list("scenarios", p.Scenarios)
	list("baselines", p.Baselines)
	list("clients", decimals(p.Clients))
	if !slices.Equal(p.Hosts, []int{1}) {
		list("hosts", decimals(p.Hosts))
	}
	list("keys", decimals(p.Keys))
	var holds []string
	for _, ns := range p.HoldNs {
		holds = append(holds, time.Duration(ns).String())
	}
	list("hold", holds)
	if p.Rate > 0 {
		args = append(args, "--rate="+strconv.FormatFloat(p.Rate, 'f', -1, 64))
	}
	list("modes", p.Modes)
	if p.Candidates > 0 {
		args = append(args, "--candidates="+strconv.Itoa(p.Candidates))
	}
	if p.TickMs > 0 {
		args = append(args, "--tick="+(time.Duration(p.TickMs)*time.Millisecond).String())
	}
	if usual := measuredByDefault[p.Quick]; p.Measurems > 0 && p.Measurems != usual.Milliseconds() {
		args = append(args, "--measure="+(time.Duration(p.Measurems)*time.Millisecond).String())
	}
	args = append(args, "--runs="+strconv.Itoa(p.Runs), "--ttl="+(time.Duration(p.TTLms)*time.Millisecond).String(), "--seed="+strconv.FormatUint(p.Seed, 10))
	if p.Parts > 0 {
		args = append(args, "--parts="+strconv.Itoa(p.Parts))
	}
	if p.Env != "" && p.Env != "local" {
		args = append(args, "--env="+p.Env)
	}
	if !p.MTLS {
		args = append(args, "--mtls=off")
	}
	for _, t := range p.OwnTargets {
		args = append(args, "--target="+t+"=ADDRESS")
	}
	return strings.Join(args, " ")
}

// faults are those of the safety cells.
func (r Report) faults() []string {
	return distinct(r.Verdict.Cells, func(c check.Cell) string { return c.Fault })
}

func decimals(in []int) []string {
	var out []string
	for _, n := range in {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
