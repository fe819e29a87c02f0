package results

import (
	"math"
	"testing"
)

// TestSensitivity: the more the runs scatter the larger is what they can show, and few
// of them show nothing.
func TestSensitivity(t *testing.T) {
	steady, noisy := []float64{100, 101, 99, 100.5, 99.5, 100}, []float64{60, 140, 80, 120, 70, 130}
	row := Row{"Acquire/backend=NAME/clients=1", "p50-ns/acquire"}
	for _, tt := range []struct {
		name     string
		runs     []float64
		gate     string
		suffices bool
	}{
		{"steady", steady, "p50-ns/acquire > +10%", true},
		{"a fall", steady, "p50-ns/acquire < -10%", true},
		{"finer than the runs", steady, "p50-ns/acquire > +0.5%", false},
		{"noisy", noisy, "p50-ns/acquire > +10%", false},
		{"noisy and wide", noisy, "p50-ns/acquire > +400%", true},
		{"too few", steady[:2], "p50-ns/acquire > +1000%", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := ParseGate(tt.gate)
			if err != nil {
				t.Fatal(err)
			}
			c := Comparison{Rows: []Difference{NewDifference(row, tt.runs, tt.runs)}}
			v, unknown := c.Judge([]Gate{g})
			if len(unknown) > 0 || len(v.Sensitivities) != 1 || v.Sensitivities[0].Suffices() != tt.suffices {
				t.Fatalf("%v, %+v", unknown, v.Sensitivities)
			}
			// What it says it could have shown is shown.
			least := v.Sensitivities[0].Detectable
			if math.IsInf(least, 0) {
				return
			}
			moved := make([]float64, len(tt.runs))
			for i, x := range tt.runs {
				moved[i] = x * (1 + 1.001*least)
			}
			if d := NewDifference(row, tt.runs, moved); !d.Supported {
				t.Errorf("a change of %v is not supported: p %v", least, d.P)
			}
		})
	}
}

// TestWorstRun: a stall of one run is in Max, whatever the median says.
func TestWorstRun(t *testing.T) {
	if e := Median([]float64{1, 2, 1, 6000, 2, 1}); e.Max != 6000 || e.Min != 1 || e.Center > 2 {
		t.Errorf("%+v", e)
	}
}
