package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// process.stop ends a plugin in three steps. The sum of their time limits is below 3 s.
const (
	closeCall = time.Second            // for Close of the plugin's backend
	closeExit = time.Second            // for the process to exit after that
	killExit  = 500 * time.Millisecond // for the process to end after SIGKILL
)

// process is one running plugin with its connection and heartbeats.
type process struct {
	run   *osProcess
	conn  *grpc.ClientConn
	unary *wire.Unary
	link  wire.Link   // the data path
	data  *frame.Link // the data path in protocol version 2, nil in version 1
	props driver.Properties

	ctx    context.Context // cancelled by abort after it has killed the process
	cancel context.CancelFunc
	wg     sync.WaitGroup

	once sync.Once
	dead chan struct{} // closed by giveUp, when the process has failed or must end
	err  error         // why the process was given up, set before dead is closed

	suspect chan struct{} // holds a value if a heartbeat must be sent at once
	echo    chan uint64   // number of the newest heartbeat that came back, read by process.answered
}

func newProcess(run *osProcess) *process {
	p := &process{run: run, dead: make(chan struct{}), suspect: make(chan struct{}, 1), echo: make(chan uint64, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// openSession opens the stream of heartbeats, waits until the first heartbeat
// has come back, and watches the process from then on.
func (p *process) openSession(ctx context.Context) error {
	s, err := p.unary.OpenSession(p.ctx)
	if err != nil {
		return err
	}
	p.wg.Go(func() { p.receive(s) })
	if err := s.Send(&lockpb.Heartbeat{}); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	select {
	case <-p.echo:
	case <-p.dead:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
	p.wg.Go(func() { p.heartbeats(s) })
	p.wg.Go(p.watchExit)
	return nil
}

// giveUp marks the process as dead and records cause. Only the first call has an effect.
func (p *process) giveUp(cause error) {
	p.once.Do(func() {
		p.err = cause
		close(p.dead)
	})
}

func (p *process) watchExit() {
	select {
	case <-p.run.exited:
		p.giveUp(p.ended())
	case <-p.ctx.Done():
	}
}

// ended says how the process ended. Unless a signal ended it, the error quotes its last output.
func (p *process) ended() error {
	err := fmt.Errorf("process %d ended: %s", p.run.pid(), p.run.outcome())
	if !p.run.crashed() {
		return err
	}
	waitFor(p.run.drained, drainFor)
	if words := p.run.log.last(); len(words) > 0 {
		return fmt.Errorf("%w; last lines on its standard error: %q", err, strings.Join(words, "\n"))
	}
	return err
}

// stop makes the plugin close its backend and exit. If the plugin does not exit in time, or ctx
// ends, stop kills the plugin.
func (p *process) stop(ctx context.Context) error {
	defer p.abort()
	if p.run.hasExited() || p.run.stopped() {
		return nil
	}
	calling, cancel := context.WithTimeout(ctx, closeCall)
	defer cancel()
	look := time.AfterFunc(closeCall/10, func() {
		if p.run.stopped() {
			cancel()
		}
	})
	defer look.Stop()
	err := p.unary.Close(calling)
	if errors.Is(err, driver.ErrUnavailable) {
		return nil // abort ends the process in any case
	}
	select {
	case <-p.run.exited:
	case <-time.After(closeExit):
	case <-ctx.Done():
	}
	return err
}

// abort kills the process if it still runs, and waits until the process and its connections
// are gone. The wait is bounded, because the kernel may be unable to kill a process.
func (p *process) abort() {
	p.giveUp(driver.ErrClosed)
	p.run.kill()
	if p.run.pid() != 0 {
		waitFor(p.run.exited, killExit)
		waitFor(p.run.drained, 2*drainFor)
	}
	p.cancel()
	if p.data != nil {
		p.data.Close()
	}
	if p.conn != nil {
		_ = p.conn.Close() // fails only in a second call
	}
	p.wg.Wait()
	p.run.dir.remove()
}

func waitFor(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

const (
	beatEvery = time.Second
	// stoppedLimit bounds the wait for a heartbeat's answer while a signal such as SIGSTOP has stopped
	// the process. While the process runs, silentLimit is the bound. It is longer, because a running
	// process may answer late for lack of CPU time.
	stoppedLimit = 300 * time.Millisecond
	silentLimit  = 3 * time.Second
	// beatSlice is the interval at which process.answered measures the plugin's silence.
	beatSlice = 25 * time.Millisecond
)

// receive reads the heartbeats that the plugin sends back, and passes their numbers to
// process.answered. When the process ends, or shortly before, Recv fails.
func (p *process) receive(s wire.Session) {
	for {
		beat, err := s.Recv()
		if err != nil {
			p.giveUp(p.connectionError("session", err))
			return
		}
		select {
		case <-p.echo: // drop an older number that process.answered did not read
		default:
		}
		p.echo <- beat.Seq
	}
}

// connectionError says how p ended. If p still runs after exitMoment, the error wraps err.
func (p *process) connectionError(which string, err error) error {
	waitFor(p.run.exited, exitMoment)
	if p.run.hasExited() {
		return p.ended()
	}
	return fmt.Errorf("%s with process %d ended: %w", which, p.run.pid(), err)
}

// heartbeats sends the plugin a heartbeat one second after each answer, or at once when a call has
// missed its deadline. If no answer comes in time, heartbeats calls giveUp.
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
			return // receive gets the reason and gives the process up
		}
		if !p.answered(seq) {
			p.giveUp(fmt.Errorf("process %d is frozen: it does not answer heartbeats", p.run.pid()))
			return
		}
		timer.Reset(beatEvery)
	}
}

// answered waits until the heartbeat numbered seq has come back. If the plugin is frozen, answered
// returns false. Each tick adds the time since the last tick to silent, but at most 2*beatSlice. So
// the plugin does not look frozen if this host process pauses or lacks CPU time.
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

// doubt makes process.heartbeats send a heartbeat at once.
func (p *process) doubt() {
	select {
	case p.suspect <- struct{}{}:
	default:
	}
}
