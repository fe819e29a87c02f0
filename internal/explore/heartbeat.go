package explore

import (
	"fmt"
	"os"
	"runtime"

	"github.com/lockbench/lockbench/internal/proc"
)

// countEvery is after how many beats the explorer looks who else runs.
const countEvery = 20

// heartbeat is the heartbeat of the explorer during one schedule.
type heartbeat struct {
	*proc.Heartbeat
	beats, looks, crowds int
}

func beginHeartbeat() *heartbeat {
	b := &heartbeat{}
	b.Heartbeat = proc.StartHeartbeat(func(*proc.Still) {
		if b.beats%countEvery == 0 {
			b.looks++
			b.crowds += runnable()
		}
		b.beats++
	})
	return b
}

// end ends the heartbeat, and returns when there was none, and how many threads
// each processor had to run on average. It may be called again.
func (b *heartbeat) end() (gaps []span, crowd float64) {
	clock := proc.MachineClock()
	for _, s := range b.Stop() {
		gaps = append(gaps, span{clock.Of(s.From), clock.Of(s.To)})
	}
	return gaps, float64(b.crowds) / float64(max(1, b.looks)) / float64(runtime.NumCPU())
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
