package load

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPoisson(t *testing.T) {
	plan := func(seed uint64) []Arrival {
		return Poisson(rand.New(rand.NewPCG(seed, 0)), 1000, 4, int64(time.Second), int64(101*time.Second))
	}
	all := plan(1)
	if n := float64(len(all)); math.Abs(n-100_000) > 5*math.Sqrt(100_000) {
		t.Errorf("%v arrivals at 1000 a second in 100 s", n)
	}
	byCaller := make([]int, 4)
	var gaps, squares float64
	last := int64(time.Second)
	for _, a := range all {
		byCaller[a.Caller]++
		gap := float64(a.Due - last)
		gaps, squares, last = gaps+gap, squares+gap*gap, a.Due
	}
	for i, n := range byCaller {
		if n < 24_000 || n > 26_000 {
			t.Errorf("caller %d has %d of %d arrivals", i, n, len(all))
		}
	}
	mean := gaps / float64(len(all))
	if cv := math.Sqrt(squares/float64(len(all))-mean*mean) / mean; cv < 0.95 || cv > 1.05 {
		t.Errorf("the gaps vary by %.2f of their mean, those of a Poisson process by 1", cv)
	}
	if !slices.Equal(all, plan(1)) || slices.Equal(all, plan(2)) {
		t.Error("the plan does not depend on the seed alone")
	}
	if got := Poisson(rand.New(rand.NewPCG(1, 0)), 0, 1, 0, int64(time.Hour)); got != nil {
		t.Errorf("%d arrivals at rate 0", len(got))
	}
}

func TestPace(t *testing.T) {
	clock := NewClock()
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	var sent []int64
	Pace(t.Context(), clock, []Arrival{{Due: ms(-5)}, {Due: ms(20)}, {Due: ms(20)}, {Due: ms(60)}}, func(a Arrival) {
		if now := clock.Now(); now < a.Due {
			t.Errorf("sent %v before it was due", time.Duration(a.Due-now))
		}
		sent = append(sent, a.Due)
	})
	if !slices.Equal(sent, []int64{ms(-5), ms(20), ms(20), ms(60)}) {
		t.Errorf("%v", sent)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	Pace(ctx, clock, []Arrival{{}, {Due: int64(time.Hour)}}, func(Arrival) { n++; cancel() })
	if n != 1 {
		t.Errorf("%d sent of a cancelled plan", n)
	}
}
