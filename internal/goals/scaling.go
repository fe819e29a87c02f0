package goals

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/stat"
)

// lastClients is the end of the scaling curve.
const lastClients = 1024

// ScalingGoals are about the curve of throughput from 1 to 1,024 callers of one
// host, which is measured by itself.
func ScalingGoals() []Goal {
	return each(func(b string) []Goal {
		return []Goal{{
			ID: "scaling/" + b, What: b + ": the least throughput after its peak, by the peak", Limit: 0.85, AtLeast: true,
			figure: ofCurve(b, curve.left),
		}, {
			ID: "scaling/" + b + "/p99", What: b + ": growth of the acquire p99 from the peak to 1,024 clients, by that of the clients", Limit: 1,
			figure: ofCurve(b, curve.queueing),
		}}
	})
}

// Hosts are shown and not judged: callers in several hosts with a plugin each
// by callers in one, as many in all, and then as many in each. Their limits
// mean nothing.
func Hosts() []Goal {
	const clients = 256
	return each(func(b string) (out []Goal) {
		one := cell{scenario: "throughput", backend: b, clients: clients}
		for _, several := range []cell{{hosts: 2, clients: clients / 2}, {hosts: 4, clients: clients / 4}, {hosts: 2, clients: clients}, {hosts: 4, clients: clients}} {
			several.scenario, several.backend = one.scenario, b
			out = append(out, Goal{
				What:   fmt.Sprintf("%s: %d hosts of %d clients / one host of %d: cycles/s", b, several.hosts, several.clients, clients),
				figure: ratio(several, one, cycles),
			})
		}
		return out
	})
}

// curve is the throughput of one backend over growing numbers of callers of one
// host.
type curve struct {
	points []point
	peak   int // index of the highest
}

// point is one number of callers of a curve, with the values of each run.
type point struct {
	Backend     string
	Clients     int
	rates, p99s []float64 // cycles per second, and nanoseconds
}

func (p point) rate() float64 { return stat.Median(p.rates).Center }

// Rate is the throughput for people.
func (p point) Rate() string { return fmt.Sprintf("%.0f", p.rate()) }

// P99 is that of acquire for people, "-" where there are too few samples for it.
func (p point) P99() string {
	if len(p.p99s) == 0 {
		return "-"
	}
	return time.Duration(stat.Median(p.p99s).Center).Round(time.Microsecond).String()
}

func curveIn(folders []Folder, backend string) (curve, error) {
	c := cell{scenario: "throughput", backend: backend}
	end := c
	end.clients = lastClients
	f, err := find(folders, end)
	if err != nil {
		return curve{}, err
	}
	out := curve{points: pointsOf(f, c)}
	if len(out.points) < 2 {
		return curve{}, fmt.Errorf("%v has one number of clients", c)
	}
	for i, p := range out.points {
		if p.rate() > out.points[out.peak].rate() {
			out.peak = i
		}
	}
	return out, nil
}

func pointsOf(f Folder, c cell) []point {
	byClients := map[int]*point{}
	for _, r := range f.lines(c) {
		p := byClients[r.Clients]
		if p == nil {
			p = &point{Backend: c.backend, Clients: r.Clients}
			byClients[r.Clients] = p
		}
		p.rates = append(p.rates, r.Values[cycles])
		if p99, ok := r.Values["p99-ns/acquire"]; ok { // there are samples for it
			p.p99s = append(p.p99s, p99)
		}
	}
	var out []point
	for _, p := range byClients {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b point) int { return a.Clients - b.Clients })
	return out
}

// top and end are the points at the peak and of the most callers.
func (c curve) top() point { return c.points[c.peak] }
func (c curve) end() point { return c.points[len(c.points)-1] }

// left is the least throughput after the peak, by the peak.
func (c curve) left() (e stat.Estimate, note string, err error) {
	top, end := c.top(), c.end()
	least := slices.MinFunc(c.points[c.peak:], func(a, b point) int { return cmp.Compare(a.rate(), b.rate()) })
	note = fmt.Sprintf("%s at %d clients, %s at %d", top.Rate(), top.Clients, end.Rate(), end.Clients)
	return stat.Compare(least.rates, top.rates).Estimate, note, nil
}

// queueing is by how much the p99 grows from the peak to the end, by how much
// the callers do: at the peak and beyond it whoever comes more has to queue.
func (c curve) queueing() (e stat.Estimate, note string, err error) {
	top, end := c.top(), c.end()
	if len(top.p99s) == 0 || len(end.p99s) == 0 {
		return e, "", fmt.Errorf("too few samples for a p99 at %d or %d clients", top.Clients, end.Clients)
	}
	e = scaled(stat.Compare(end.p99s, top.p99s).Estimate, float64(end.Clients)/float64(top.Clients))
	return e, fmt.Sprintf("%s at %d clients, %s at %d", top.P99(), top.Clients, end.P99(), end.Clients), nil
}

func ofCurve(backend string, value func(curve) (stat.Estimate, string, error)) figure {
	return func(folders []Folder) (stat.Estimate, string, error) {
		c, err := curveIn(folders, backend)
		if err != nil {
			return stat.Estimate{}, "", err
		}
		return value(c)
	}
}
