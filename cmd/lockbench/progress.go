package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/lockbench/lockbench/bench"
)

// newProgress shows a bar on a terminal, and now and then a line elsewhere.
func newProgress(w io.Writer) bench.Progress {
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return &bar{w: w}
	}
	return &lines{w: w}
}

// bar is for terminals.
type bar struct {
	w     io.Writer
	pool  *mpb.Progress
	bar   *mpb.Bar
	label atomic.Value // string; read by the goroutine that draws
	begun bool
}

func (b *bar) Begin(steps int, guess time.Duration) {
	fmt.Fprintf(b.w, "%d cells, about %v\n", steps, guess.Round(time.Second))
	b.label.Store("")
	b.pool = mpb.New(mpb.WithOutput(b.w), mpb.WithWidth(30))
	b.bar = b.pool.AddBar(int64(steps),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(
			decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "done"),
			decor.Any(func(decor.Statistics) string { return "  " + b.label.Load().(string) }),
		),
	)
}

func (b *bar) Step(label string) {
	if b.begun {
		b.bar.Increment()
	}
	b.begun = true
	b.label.Store(label)
}

func (b *bar) End() {
	b.bar.Abort(true)
	b.pool.Wait()
}

// lineEvery is how often something is said where there is no terminal.
const lineEvery = 10 * time.Second

// lines is for logs and pipes.
type lines struct {
	w     io.Writer
	steps int
	done  int
	last  time.Time
}

func (l *lines) Begin(steps int, guess time.Duration) {
	l.steps, l.last = steps, time.Now()
	fmt.Fprintf(l.w, "%d cells, about %v\n", steps, guess.Round(time.Second))
}

func (l *lines) Step(label string) {
	if time.Since(l.last) >= lineEvery {
		fmt.Fprintf(l.w, "%d of %d done; %s\n", l.done, l.steps, label)
		l.last = time.Now()
	}
	l.done++
}

func (l *lines) End() {}
