package explore

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"time"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/proc"
)

// countEvery is after how many beats the explorer looks who else runs.
const countEvery = 20

// heartbeat is the heartbeat of the explorer during one schedule.
type heartbeat struct {
	*proc.Heartbeat
	beats, looks, runQueues int
	waited                  map[int]time.Duration // by thread of a server, for a processor
	longest                 time.Duration         // that one has waited from one look to the next
}

func beginHeartbeat(w *System) *heartbeat {
	b := &heartbeat{}
	b.Heartbeat = proc.StartHeartbeat(func(*proc.Still) {
		if b.beats%countEvery == 0 {
			b.looks++
			b.runQueues += runnable()
			b.lookAt(w.Setup.Servers)
		}
		b.beats++
	})
	return b
}

// lookAt notes how long threads of the servers have waited for a processor since
// the last look. A heartbeat sleeps most of the time, so that the kernel lets it
// run at once; a server that has work to do waits among those who have some, too.
func (b *heartbeat) lookAt(servers []fault.Server) {
	now := map[int]time.Duration{}
	for _, s := range servers {
		maps.Copy(now, proc.Waited(s.Pid()))
	}
	for thread, waited := range now {
		if before, known := b.waited[thread]; known {
			b.longest = max(b.longest, waited-before)
		}
	}
	b.waited = now
}

// end ends the heartbeat, and records when there was none, how many threads each
// processor had to run on average, and how long those of a server waited. It may
// be called again.
func (b *heartbeat) end(h *History) {
	clock := proc.MachineClock()
	h.Gaps = nil
	for _, s := range b.Stop() {
		h.Gaps = append(h.Gaps, span{clock.Of(s.From), clock.Of(s.To)})
	}
	h.RunQueue = float64(b.runQueues) / float64(max(1, b.looks)) / float64(runtime.NumCPU())
	h.Waited = b.longest
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
