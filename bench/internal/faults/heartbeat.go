package faults

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// countEvery is after how many beats the search looks who else runs.
const countEvery = 20

// heartbeat is the heartbeat of the search during one schedule.
type heartbeat struct {
	*proc.Heartbeat
	beats, looks, runQueues int
	servers                 proc.Waits
}

func beginHeartbeat(w *System) *heartbeat {
	b := &heartbeat{}
	b.Heartbeat = proc.StartHeartbeat(func(*proc.Stall) {
		if b.beats%countEvery == 0 {
			b.looks++
			b.runQueues += runnable()
			b.servers.Look(pids(w.Servers)...)
		}
		b.beats++
	})
	return b
}

func pids(servers servers.Nodes) []int {
	ids := make([]int, len(servers))
	for i, s := range servers {
		ids[i] = s.Pid()
	}
	return ids
}

// end ends the heartbeat, and records when there was none, how many threads each
// processor had to run on average, and how long those of a server waited. It may
// be called again.
func (b *heartbeat) end(h *History) {
	clock := proc.MachineClock()
	h.Gaps = nil
	for _, s := range b.Stop() {
		h.Gaps = append(h.Gaps, check.Span{clock.Of(s.From), clock.Of(s.To)})
	}
	h.RunQueue = float64(b.runQueues) / float64(max(1, b.looks)) / float64(runtime.NumCPU())
	h.Waited = b.servers.Longest(time.Time{})
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
