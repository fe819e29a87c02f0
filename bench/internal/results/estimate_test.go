package results

import (
	"math"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	values := []float64{10, 8, 9, 100, 7, 8.5, 9.5, 8, 9, 10}
	before := slices.Clone(values)
	e := Median(values)
	if e.Center != 9 || e.N != 10 || !e.Bounded() || e.Lo > 9 || e.Hi < 9 || e.Hi >= 100 {
		t.Errorf("%+v: one bad run of ten should move neither the median nor the interval far", e)
	}
	if !slices.Equal(values, before) {
		t.Error("the caller's slice was sorted")
	}
	if e := Median([]float64{5, 6}); e.Bounded() || !math.IsInf(e.Spread(), 1) {
		t.Errorf("an interval of two runs: %+v", e)
	}
	if e := Median(nil); e != (Estimate{}) || e.Bounded() {
		t.Errorf("%+v", e)
	}
}

func TestCompare(t *testing.T) {
	base := []float64{100, 120, 90, 110, 105, 95, 130, 80}
	var half, same []float64
	for i, v := range base {
		half = append(half, v/2)
		same = append(same, base[(i+3)%len(base)])
	}
	r := Compare(half, base)
	if r.Center != 0.5 || !r.Supported || r.Spread() > 1e-9 {
		t.Errorf("half: %+v; drift shared by a round should cancel", r)
	}
	if r := Compare(same, base); r.Supported {
		t.Errorf("the same values in another order: %+v", r)
	}
	if r := Compare([]float64{1, 2, 3}, []float64{10, 20, 30}); r.Supported {
		t.Errorf("three runs support nothing at this level: %+v", r)
	}
	if r := Compare(nil, base); r != (Ratio{}) {
		t.Errorf("%+v", r)
	}
	if r := Compare([]float64{1}, []float64{0}); r != (Ratio{}) {
		t.Errorf("a ratio to zero: %+v", r)
	}
}

func TestHolm(t *testing.T) {
	corrected := func(ps ...float64) (out []*Test) {
		for _, p := range ps {
			out = append(out, &Test{P: p})
		}
		Holm(out)
		return out
	}
	got := corrected(0.01, 0.04, 0.03, 0.005)
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if math.Abs(got[i].Adjusted-want) > 1e-12 || got[i].Supported != (want < Alpha) {
			t.Fatalf("%d: %+v, want %v", i, got[i], want)
		}
	}
	if got := corrected(0.9, 0.8); got[0].Adjusted != 1 || got[1].Adjusted != 1 {
		t.Errorf("%v, %v: no p-value is above 1", got[0], got[1])
	}
}

func TestNewDifference(t *testing.T) {
	before := []float64{100, 101, 102, 103, 104, 105}
	after := []float64{120, 121, 122, 123, 124, 125}
	d := NewDifference(Row{}, before, after)
	if math.Abs(d.Delta-20/102.5) > 1e-9 || !d.Supported || d.P > 0.0022 {
		t.Errorf("%+v", d)
	}
	if d := NewDifference(Row{}, []float64{0, 0, 0, 0}, []float64{1, 1, 1, 1}); !math.IsInf(d.Delta, 1) {
		t.Errorf("%+v", d)
	}
	if d := NewDifference(Row{}, []float64{0, 0}, []float64{0, 0}); d.Delta != 0 || d.Supported {
		t.Errorf("%+v", d)
	}
}

// TestLeastP checks that leastP returns the p-value of the U test for samples without an overlap.
func TestLeastP(t *testing.T) {
	for n := 3; n <= 10; n++ {
		var low, high []float64
		for i := range n {
			low, high = append(low, float64(i)), append(high, float64(i+100))
		}
		if got, want := leastP(n, n), NewDifference(Row{}, low, high).P; math.Abs(got-want) > 1e-9 {
			t.Errorf("%d runs: %v, the test says %v", n, got, want)
		}
	}
	if n := RunsNeeded(1); n != 4 {
		t.Errorf("one row needs %d runs", n)
	}
	if n := RunsNeeded(27); n != 7 {
		t.Errorf("27 rows need %d runs", n)
	}
}

// TestSensitivity checks that values which scatter more allow a gate to notice only larger changes,
// and that too few runs allow a gate to notice no change at all.
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
			// The U test must support a change that is just larger than Detectable.
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
