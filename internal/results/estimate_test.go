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
