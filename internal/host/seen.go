package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
)

// see keeps what the host has told. It is called with mu locked.
func (p *Process) see(n note) {
	switch {
	case n.Lease != nil:
		p.lease(*n.Lease)
	case n.Write != nil:
		p.seen.Writes = append(p.seen.Writes, *n.Write)
	case n.Halt != nil:
		p.seen.Halts = append(p.seen.Halts, *n.Halt)
	case n.Call != nil:
		p.seen.Calls = append(p.seen.Calls, *n.Call)
	case n.Plugin != 0:
		p.plugin = n.Plugin
	case n.Asking != nil:
		p.asking = *n.Asking
	case n.Idle:
		p.idle++
	}
}

// lease keeps the newest state of each, which is most often one of the last.
func (p *Process) lease(l results.Hold) {
	if l.ReleasedNs == 0 {
		p.releaseNs = max(p.releaseNs, l.ReleaseNs)
	}
	for i := len(p.seen.Holds) - 1; i >= 0; i-- {
		if of := &p.seen.Holds[i]; of.Name == l.Name && of.Token == l.Token && of.GrantedNs == l.GrantedNs {
			*of = l
			return
		}
	}
	p.seen.Holds = append(p.seen.Holds, l)
}

// Follow has each state of a hold, and each call that has come back, passed on as it
// is told of; the other of the two is nil. It is called before there is anything to
// tell of; on is called by one goroutine.
func (p *Process) Follow(on func(*results.Hold, *results.Call)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follow = on
}

// Await returns when until says so of what was seen, and fails when ctx or
// the process ends before.
func (p *Process) Await(ctx context.Context, until func(results.Seen) bool) error {
	for over := false; ; {
		p.mu.Lock()
		done, change := until(p.seen), p.change
		p.mu.Unlock()
		switch {
		case done:
			return nil
		case over:
			return fmt.Errorf("host: %w", proc.ErrEnded)
		}
		select {
		case <-change:
		case <-p.Ended():
			over = true // there is no change after the last look
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Seen returns what was seen since the last call of Forget.
func (p *Process) Seen() results.Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen
	s.Holds, s.Calls = slices.Clone(s.Holds), slices.Clone(s.Calls)
	return s
}

// Forget begins anew with the leases that have no end: a round is over.
func (p *Process) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = results.Seen{Holds: slices.DeleteFunc(slices.Clone(p.seen.Holds), func(l results.Hold) bool { return !l.Held() })}
}

// PluginPid is the process id of its plugin when it was last started; 0 for a
// library.
func (p *Process) PluginPid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plugin
}

// Asking reports whether a caller of a workload asks for a lock, and when the
// last release of one began, by [proc.Now].
func (p *Process) Asking() (asking bool, releaseNs int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking, p.releaseNs
}

// Acquire lets the host wait for count locks, whose names are prefix and a number
// from first on, up to timeout, and hold each until it loses it or is told to
// release. It writes under what it holds. It returns at once.
func (p *Process) Acquire(prefix string, first, count int, ttl, timeout time.Duration) error {
	for n := first; n < first+count; n++ {
		err := p.Work(Workload{
			Kind: results.OpLock, Prefix: prefix, First: n, Names: 1, Callers: 1, TTL: ttl, Limit: Range{timeout, timeout}, Hold: Forever, Once: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Release ends waiting and holding, and returns when every release has come
// back.
func (p *Process) Release(ctx context.Context) error { return p.ReleaseFrom(ctx, 0) }

// ReleaseFrom does the same for the workloads whose first number is first or a
// higher one.
func (p *Process) ReleaseFrom(ctx context.Context, first int) error {
	p.mu.Lock()
	before := p.idle
	p.mu.Unlock()
	if err := p.Send(order{Op: opRelease, First: first}); err != nil {
		return err
	}
	return p.Await(ctx, func(results.Seen) bool { return p.idle > before })
}
