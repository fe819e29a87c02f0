package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// The first restart of a plugin comes without a pause, because its leases need renewals (rule L8).
const (
	backoffFirst = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
	// A failure is a failed start, or a plugin's end within steadyAfter of its start. After crashLoop
	// failures in a row, the interval between restarts is about slowPace, and the errors of calls
	// state the number of failures.
	crashLoop   = 8
	steadyAfter = 20 * time.Second
	slowPace    = 15 * time.Second
)

// supervise keeps a plugin process running until the backend is closed.
// After Open, only supervise and the functions that it calls start processes.
func (b *backend) supervise(p *process) {
	defer close(b.done)
	failures := 0
	for p != nil {
		started := time.Now()
		select {
		case <-b.ctx.Done():
			b.closeErr = p.stop(b.closing)
			return
		case <-p.dead:
		}
		b.setDown(p.err)
		p.abort()
		if time.Since(started) >= steadyAfter {
			failures = 0
		}
		p = b.restart(p.err, &failures)
	}
}

// restart tries to start a plugin process until a start succeeds, and returns the new process. If
// the backend is closed, restart returns nil.
func (b *backend) restart(cause error, failures *int) *process {
	for {
		*failures++
		pause := backoff(*failures)
		if *failures > crashLoop {
			b.setDown(fmt.Errorf("failed %d times in a row, next try in %v; last: %w", *failures, pause.Round(time.Second), cause))
		}
		timer := time.NewTimer(pause)
		select {
		case <-b.ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		p, err := b.launcher.launch(b.ctx)
		if err == nil {
			b.install(p)
			b.watchers.notify(driver.Notice{Kind: driver.NoticeUp, Plugin: true})
			return p
		}
		cause = err
		b.setDown(err)
	}
}

// backoff returns a random pause before restart n, so that hosts do not restart plugins together.
func backoff(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	if n > crashLoop {
		return slowPace/2 + rand.N(slowPace)
	}
	d := min(backoffFirst<<(n-2), maxBackoff)
	return d/2 + rand.N(d)
}

// setDown makes calls fail with an error that wraps cause.
func (b *backend) setDown(cause error) {
	b.mu.Lock()
	first := b.current != nil
	b.current = nil
	b.downErr = fmt.Errorf("plugin %q is down: %w", b.launcher.name, cause)
	err := b.downErr
	b.mu.Unlock()
	if first {
		b.watchers.notify(driver.Notice{Kind: driver.NoticeDown, Err: err, Plugin: true})
	}
}

// install makes the backend use the process p, and passes the notices from p's backend to watchers.
func (b *backend) install(p *process) {
	b.setProperties(p.props)
	b.mu.Lock()
	b.current = p
	b.mu.Unlock()
	if slices.Contains(p.props.Capabilities, driver.CapWatcher) {
		p.wg.Go(func() { b.forward(p) })
	}
}

func (b *backend) forward(p *process) {
	for p.ctx.Err() == nil {
		// Ignore the error of Watch, because the loop calls Watch again until p ends.
		_ = p.link.Watch(p.ctx, b.watchers.notify)
		select {
		case <-p.ctx.Done():
		case <-time.After(backoffFirst):
		}
	}
}
