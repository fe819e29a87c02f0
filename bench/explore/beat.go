package explore

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/witness"
)

const (
	// beatEvery is how often the explorer looks whether it runs, and countEvery
	// after how many times it looks who else does.
	beatEvery  = 5 * time.Millisecond
	countEvery = 20
	// gapAfter is the silence from which on it did not.
	gapAfter = 15 * time.Millisecond
)

// beat is the heartbeat of the explorer during one schedule.
type beat struct {
	stop  chan struct{}
	once  sync.Once
	ended sync.WaitGroup

	gaps          []span
	looks, crowds int
}

func beginBeat() *beat {
	b := &beat{stop: make(chan struct{})}
	b.ended.Go(b.run)
	return b
}

func (b *beat) run() {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	last := witness.Now()
	for n := 0; ; n++ {
		select {
		case <-b.stop:
			return
		case <-t.C:
		}
		now := witness.Now()
		if now-last > int64(gapAfter) {
			b.gaps = append(b.gaps, span{last, now})
		}
		last = now
		if n%countEvery == 0 {
			b.looks++
			b.crowds += runnable()
		}
	}
}

// end ends the heartbeat, and returns when there was none, and how many threads
// each processor had to run on average. It may be called again.
func (b *beat) end() (gaps []span, crowd float64) {
	b.once.Do(func() { close(b.stop) })
	b.ended.Wait()
	return b.gaps, float64(b.crowds) / float64(max(1, b.looks)) / float64(runtime.NumCPU())
}

// runnable is how many threads of the machine run or could; 0 where that is not
// known.
func runnable() (now int) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	_, _ = fmt.Sscanf(string(text), "%f %f %f %d", &load, &load, &load, &now) // as Linux writes it
	return now
}
