package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// A log gets at most one line about a task's progress in each interval of logEvery. If the task is
// expected to take at least logFrom, the log also gets a line when the task begins.
const (
	logEvery = 30 * time.Second
	logFrom  = 10 * time.Second
)

// progress shows the progress of a task, and the time left. If w is a terminal, it shows a bar. If
// w is no terminal, it writes lines, as to a log.
type progress struct {
	w           io.Writer
	pool        *mpb.Progress // nil: w is not a terminal
	wait        *mpb.Bar      // shown while the amount of work is unknown
	bar         *mpb.Bar
	label       atomic.Value // string; read by the goroutine that draws
	steps, done int
	began, last time.Time // last: when the last line was written
	guess       time.Duration
}

// If w is a terminal, newProgress shows the text in preparing until the Begin method is called. The
// caller must call the End method.
func newProgress(w io.Writer, preparing string) *progress {
	p := &progress{w: w}
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
	p.steps, p.guess, p.began, p.last = steps, guess, time.Now(), time.Now()
	if p.pool != nil {
		p.wait.Abort(true)
	}
	if guess >= logFrom || p.pool != nil && guess > 0 {
		cells := "cells"
		if steps == 1 {
			cells = "cell"
		}
		fmt.Fprintf(p.above(p.w), "%d %s, about %v\n", steps, cells, guess.Round(time.Second))
	}
	if p.pool == nil {
		return
	}
	p.bar = p.pool.AddBar(int64(steps),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(
			decor.Any(func(s decor.Statistics) string { return timeLeft(s, time.Since(p.began), guess) }),
			decor.Any(func(decor.Statistics) string { return "  " + p.label.Load().(string) }),
		),
	)
}

// timeLeft returns the time left, as text. Until a step is done, it takes guess for the whole time.
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
	p.label.Store(label)
	if now := time.Now(); p.bar == nil && p.steps > 0 && now.Sub(p.last) >= logEvery {
		p.last = now
		left := timeLeft(decor.Statistics{Current: int64(p.done), Total: int64(p.steps)}, now.Sub(p.began), p.guess)
		fmt.Fprintf(p.w, "%d/%d, %s left: %s\n", p.done, p.steps, left, label)
	}
	if p.bar != nil && p.done > 0 {
		p.bar.Increment()
	}
	p.done++
}

// End implements bench.Progress. It may be called more than once, and before Begin.
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

// above returns the writer for lines. On a terminal, the lines appear above the progress bar.
func (p *progress) above(w io.Writer) io.Writer {
	if p.pool == nil || !isTerminal(w) {
		return w
	}
	return p.pool
}
