package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how far something is that takes more than two seconds, with
// the time that is left. It shows nothing where w is no terminal: logs and
// pipes want results.
type progress struct {
	pool *mpb.Progress // nil: shows nothing
	wait *mpb.Bar      // while it is unknown how much there is to do
	bar  *mpb.Bar
	// label is read by the goroutine that draws.
	label atomic.Value // string
	begun bool
}

// newProgress shows that something is being prepared, until Begin. Whoever
// makes it calls End.
func newProgress(w io.Writer, preparing string) *progress {
	p := &progress{}
	p.label.Store("")
	if !isTerminal(w) {
		return p
	}
	p.pool = mpb.New(mpb.WithOutput(w), mpb.WithWidth(24))
	p.wait = p.pool.New(0, mpb.SpinnerStyle().PositionLeft(), mpb.BarWidth(2),
		mpb.AppendDecorators(decor.Name(preparing+", "), decor.Elapsed(decor.ET_STYLE_GO)))
	return p
}

// Begin implements bench.Progress.
func (p *progress) Begin(steps int, guess time.Duration) {
	if p.pool == nil {
		return
	}
	p.wait.Abort(true)
	if guess > 0 {
		fmt.Fprintf(p.pool, "%d cells, about %v\n", steps, guess.Round(time.Second))
	}
	began := time.Now()
	p.bar = p.pool.AddBar(int64(steps),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(
			decor.Any(func(s decor.Statistics) string { return timeLeft(s, time.Since(began), guess) }),
			decor.Any(func(decor.Statistics) string { return "  " + p.label.Load().(string) }),
		),
	)
}

// timeLeft is the guess, if there is one, until something is done to go by.
func timeLeft(s decor.Statistics, took, guess time.Duration) string {
	left := guess - took
	if s.Current > 0 {
		left = time.Duration(float64(took) / float64(s.Current) * float64(s.Total-s.Current))
	} else if guess == 0 {
		return "?"
	}
	return max(0, left).Round(time.Second).String()
}

// Step implements bench.Progress.
func (p *progress) Step(label string) {
	if p.bar == nil {
		return
	}
	if p.begun {
		p.bar.Increment()
	}
	p.begun = true
	p.label.Store(label)
}

// End implements bench.Progress. It may be called at any time, and again.
func (p *progress) End() {
	if p.pool == nil {
		return
	}
	p.wait.Abort(true)
	if p.bar != nil {
		p.bar.Abort(true)
	}
	p.pool.Wait()
}

// above is where lines go that w gets while the bar is shown: on a terminal
// they are drawn above it.
func (p *progress) above(w io.Writer) io.Writer {
	if p.pool == nil || !isTerminal(w) {
		return w
	}
	return p.pool
}
