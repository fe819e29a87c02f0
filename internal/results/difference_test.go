package results

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

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
	if math.Abs(d.Delta-20/102.5) > 1e-9 || d.Effect != 1 || !d.Supported || d.P > 0.0022 {
		t.Errorf("%+v", d)
	}
	if d := NewDifference(Row{}, after, before); d.Effect != -1 || d.Delta >= 0 {
		t.Errorf("%+v", d)
	}
	if d := NewDifference(Row{}, before, before); d.Effect != 0 || d.Delta != 0 || d.Supported {
		t.Errorf("%+v", d)
	}
	if d := NewDifference(Row{}, []float64{1, 2, 3}, []float64{7, 8, 9}); d.Supported || len(d.Warnings) == 0 {
		t.Errorf("three runs support nothing, and that is a warning: %+v", d)
	}
	zero := NewDifference(Row{}, []float64{0, 0, 0, 0}, []float64{1, 1, 1, 1})
	if !math.IsInf(zero.Delta, 1) {
		t.Errorf("%+v", zero)
	}
	if d := NewDifference(Row{}, []float64{0, 0}, []float64{0, 0}); d.Delta != 0 || d.Supported {
		t.Errorf("%+v", d)
	}
	if d := NewDifference(Row{}, nil, after); d.Supported || len(d.Warnings) != 1 {
		t.Errorf("%+v", d)
	}
}

// TestLeastP compares with what the test itself says of samples that do not
// overlap.
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

// rows draws the figures of two builds whose runs scatter by about 10 %, a few
// far more. The new build takes factor times as long.
func rows(r *rand.Rand, n, runs int, factor float64) []Difference {
	draw := func(scale float64) []float64 {
		var out []float64
		for range runs {
			v := scale * math.Exp(0.1*r.NormFloat64())
			if r.IntN(20) == 0 {
				v *= 3
			}
			out = append(out, v)
		}
		return out
	}
	var out []Difference
	for range n {
		d := NewDifference(Row{}, draw(100), draw(100*factor))
		d.Better = -1
		out = append(out, d)
	}
	correct(out)
	return out
}

// TestOneBuildAgainstItself: of 200 comparisons, in each of which 27 rows could
// differ, at most one in twenty finds something, and of a build that takes 20 %
// longer every comparison finds it.
func TestOneBuildAgainstItself(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	wrong, found := 0, 0
	const comparisons = 200
	for range comparisons {
		if slices.ContainsFunc(rows(r, 27, 10, 1), Difference.Worse) {
			wrong++
		}
		if slices.ContainsFunc(rows(r, 27, 10, 1.2), Difference.Worse) {
			found++
		}
	}
	if wrong > comparisons/20 || found != comparisons {
		t.Errorf("%d of %d found a regression that is none, %d one that is", wrong, comparisons, found)
	}
}

func TestWorse(t *testing.T) {
	for _, tt := range []struct {
		d             Difference
		worse, better bool
	}{
		{Difference{Test: Test{Supported: true}, Delta: 0.2, Better: -1}, true, false},
		{Difference{Test: Test{Supported: true}, Delta: -0.2, Better: -1}, false, true},
		{Difference{Test: Test{Supported: true}, Delta: -0.2, Better: 1}, true, false},
		{Difference{Test: Test{Supported: true}, Delta: 0.2}, false, false},
		{Difference{Test: Test{Supported: true}, Delta: 0.04, Better: -1}, false, false},
		{Difference{Delta: 0.2, Better: -1}, false, false},
	} {
		if tt.d.Worse() != tt.worse || tt.d.Improved() != tt.better {
			t.Errorf("%+v: worse %v, better %v", tt.d, tt.d.Worse(), tt.d.Improved())
		}
	}
}
