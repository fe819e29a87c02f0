package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/measure"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
)

func someCells() []cell {
	var out []cell
	for _, name := range []string{"memory", "redis", "redislock"} {
		for _, sc := range []string{"acquire", "contend"} {
			for _, n := range []int{1, 8} {
				out = append(out, cell{subject: &subject{Subject: results.Subject{Name: name}}, scenario: measure.Scenario{Name: sc}, Workload: measure.Workload{Clients: n}})
			}
		}
	}
	return out
}

func label(c cell) string {
	return fmt.Sprintf("%s/%s/%d", c.scenario.Name, c.subject.Name, c.Clients)
}

func labels(round []cell) []string {
	var out []string
	for _, c := range round {
		out = append(out, label(c))
	}
	return out
}

func TestRounds(t *testing.T) {
	cells := someCells()
	all := rounds(cells, 20, 1)
	want := slices.Sorted(slices.Values(labels(cells)))
	orders := map[string]bool{}
	for i, round := range all {
		got := labels(round)
		orders[strings.Join(got, " ")] = true
		if !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("round %d does not have every cell once: %v", i, got)
		}
		for j := 0; j < len(round); j += 3 {
			for _, c := range round[j : j+3] {
				if c.scenario.Name != round[j].scenario.Name || c.Clients != round[j].Clients {
					t.Errorf("round %d: compared cells are apart: %v", i, got)
				}
			}
		}
	}
	if len(orders) < 15 {
		t.Errorf("%d different orders in 20 rounds", len(orders))
	}
	again := rounds(someCells(), 20, 1)
	other := rounds(someCells(), 20, 2)
	same := func(a, b [][]cell) bool {
		return slices.EqualFunc(a, b, func(x, y []cell) bool { return slices.Equal(labels(x), labels(y)) })
	}
	if !same(all, again) || same(all, other) {
		t.Error("the order does not depend on the seed alone")
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"none":    func(p *Plan) { p.Scenarios = nil },
		"clients": func(p *Plan) { p.Clients = []int{0} },
		"too few": func(p *Plan) { p.Scenarios, p.Hosts, p.Clients = []string{"contend"}, []int{1}, []int{1} },
		"runs":    func(p *Plan) { p.Runs = 0 },
		"for":     func(p *Plan) { p.Scenarios, p.For = []string{"ttl"}, 0 },
		"keys":    func(p *Plan) { p.Scenarios, p.Keys = []string{"throughput"}, []int{0} },
		"hold":    func(p *Plan) { p.Scenarios, p.Hold = []string{"throughput"}, []time.Duration{p.TTL} },
		"long hold": func(p *Plan) {
			p.Scenarios, p.Hold = []string{"footprint"}, []time.Duration{2 * time.Hour}
		},
		"measure":  func(p *Plan) { p.Measure = 0 },
		"one part": func(p *Plan) { p.Parts = 1 },
		"whatever": func(p *Plan) { p.Parts = 2 },
		"own server": func(p *Plan) {
			p.Parts, p.Backends, p.config = 2, []string{"redis", "etcd"}, map[string]driver.Config{"etcd": {"address": "h:1"}}
		},
		"too many": func(p *Plan) { p.Scenarios, p.Hosts = []string{"throughput"}, []int{65} },
		"rate":     func(p *Plan) { p.Rate = math.NaN() },
	} {
		p := DefaultPlan(true)
		change(&p)
		var usage *UsageError
		if err := p.Check(); !errors.As(err, &usage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
