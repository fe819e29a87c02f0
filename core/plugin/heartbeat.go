package plugin

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

const (
	beatEvery = time.Second
	// stoppedLimit is how long a process that is stopped by a signal may leave
	// a heartbeat without an answer; silentLimit holds for one that is not,
	// and may just be starved of CPU time.
	stoppedLimit = 300 * time.Millisecond
	silentLimit  = 3 * time.Second
	// beatSlice is the grain in which the time without an answer is counted.
	beatSlice = 25 * time.Millisecond
)

// receive hands on the heartbeats that come back. The end of the stream is the
// end of the process, or close before it.
func (p *process) receive(s wire.Session) {
	for {
		beat, err := s.Recv()
		if err != nil {
			p.giveUp(p.connectionError("session", err))
			return
		}
		select {
		case <-p.echo: // only the newest matters
		default:
		}
		p.echo <- beat.Seq
	}
}

// connectionError prefers the exit status, which follows within a moment.
func (p *process) connectionError(which string, err error) error {
	waitFor(p.run.exited, exitMoment)
	if p.run.hasExited() {
		return p.ended()
	}
	return fmt.Errorf("%s with process %d ended: %w", which, p.run.pid(), err)
}

// heartbeats sends a heartbeat every second, and at once when a call has hit its
// deadline, and gives the process up when one is not answered.
func (p *process) heartbeats(s wire.Session) {
	timer := time.NewTimer(beatEvery)
	defer timer.Stop()
	for seq := uint64(1); ; seq++ {
		select {
		case <-timer.C:
		case <-p.suspect:
		case <-p.dead:
			return
		}
		if err := s.Send(&lockpb.Heartbeat{Seq: seq}); err != nil {
			return // receive learns the cause
		}
		if !p.answered(seq) {
			p.giveUp(fmt.Errorf("process %d is frozen: it does not answer heartbeats", p.run.pid()))
			return
		}
		timer.Reset(beatEvery)
	}
}

// answered waits for heartbeat seq. It counts only time in which this process
// ran itself, slice by slice: after a pause of the host, or on a machine that
// gives it no CPU time, the plugin gets a fresh chance.
func (p *process) answered(seq uint64) bool {
	slice := time.NewTicker(beatSlice)
	defer slice.Stop()
	var silent time.Duration
	for last := time.Now(); ; {
		select {
		case got := <-p.echo:
			if got >= seq {
				return true
			}
			continue
		case <-p.dead:
			return true
		case <-slice.C:
		}
		now := time.Now()
		silent += min(now.Sub(last), 2*beatSlice)
		last = now
		limit := silentLimit
		if silent >= stoppedLimit && p.run.stopped() {
			limit = stoppedLimit
		}
		if silent >= limit {
			return false
		}
	}
}

// doubt asks for a heartbeat now.
func (p *process) doubt() {
	select {
	case p.suspect <- struct{}{}:
	default:
	}
}
