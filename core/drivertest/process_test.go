package drivertest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/memory"
)

// process simulates a plugin process, its supervisor, and the host's connection to the plugin.
type process struct {
	*calls
	w       *fixture
	link    *calls
	pipe    *valve
	notices chan driver.Notice

	mu     sync.Mutex
	pid    int
	closed bool
	timers []*time.Timer
	held   map[string]driver.Request // by owner
	since  map[string]time.Time
	queued map[string]driver.Request
}

func (w *fixture) open(t T, store *memory.Store) driver.Backend {
	p := w.process(store)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

func (w *fixture) process(store *memory.Store) *process {
	w.pids++
	p := &process{
		w: w, link: w.link(store), pipe: newValve(), notices: make(chan driver.Notice, 100), pid: w.pids,
		held: map[string]driver.Request{}, since: map[string]time.Time{}, queued: map[string]driver.Request{},
	}
	book := callsOf(p.link)
	book.batch = p.link.batch
	p.keepBook(book)
	p.calls = book.behind(p.pipe)
	p.calls.watch = p.watchBoth
	p.calls.close = p.end
	return p
}

// keepBook makes c record the host's leases and queued waiters, so that hostDied can end them. It
// does not record batches, because the hosts that die in a case send no batches.
func (p *process) keepBook(c *calls) {
	note := func(f func()) { p.mu.Lock(); defer p.mu.Unlock(); f() }
	acquire, release, withdraw, wait := c.acquire, c.release, c.withdraw, c.wait
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		token, err := acquire(ctx, r)
		if err == nil {
			r.Token = token
			note(func() { p.held[r.Owner], p.since[r.Owner] = r, time.Now(); delete(p.queued, r.Owner) })
		}
		return token, err
	}
	c.release = func(ctx context.Context, r driver.Request) error {
		err := release(ctx, r)
		if err == nil {
			note(func() { delete(p.held, r.Owner); delete(p.queued, r.Owner) })
		}
		return err
	}
	c.withdraw = func(ctx context.Context, name, owner string) error {
		err := withdraw(ctx, name, owner)
		if err == nil {
			note(func() { delete(p.held, owner); delete(p.queued, owner) })
		}
		return err
	}
	c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
		note(func() { p.queued[r.Owner] = r })
		return wait(ctx, r, limit)
	}
}

func (p *process) hostDied() {
	p.mu.Lock()
	held, queued := maps.Clone(p.held), maps.Clone(p.queued)
	p.mu.Unlock()
	for owner, r := range held {
		r.Keep = max(0, r.Keep-time.Since(p.since[owner]))
		_ = p.link.release(context.Background(), r)
	}
	for _, r := range queued {
		_ = p.link.withdraw(context.Background(), r.Name, r.Owner)
	}
}

func (p *process) renewFor(d time.Duration) {
	if p.w.bug.forgetsDelay || d <= 0 {
		return
	}
	every := d
	for _, r := range p.held {
		_ = p.link.renew(context.Background(), r)
		every = min(every, r.TTL/3)
	}
	p.later(every, func() { p.renewFor(d - every) })
}

func (p *process) watchBoth(ctx context.Context, emit func(driver.Notice)) error {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(ctx)
	defer wg.Wait()
	defer cancel()
	one := func(n driver.Notice) { mu.Lock(); defer mu.Unlock(); emit(n) }
	wg.Go(func() { _ = p.link.watch(ctx, one) })
	for {
		select {
		case n := <-p.notices:
			one(n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *process) end(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for _, timer := range p.timers {
		timer.Stop()
	}
	p.mu.Unlock()
	err := p.link.close(ctx)
	p.pipe.set(false, false)
	return err
}

func (p *process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *process) later(d time.Duration, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.timers = append(p.timers, time.AfterFunc(d, f))
	}
}

func (p *process) Kill(T) {
	p.mu.Lock()
	p.pid = 0
	held := slices.Collect(maps.Values(p.held))
	p.mu.Unlock()
	p.pipe.set(true, false)
	if !p.w.bug.silentDeath {
		p.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true, Err: driver.ErrPluginDied}
	}
	if p.w.bug.pluginTakesLocks {
		for _, r := range held {
			_ = p.link.release(context.Background(), r)
		}
	}
	p.later(20*time.Millisecond, p.begin)
}

func (p *process) begin() {
	if p.w.bug.diesWithPlugin {
		p.w.wipe()
	}
	p.mu.Lock()
	p.w.pids++
	p.pid = p.w.pids
	p.mu.Unlock()
	p.pipe.set(false, false)
	if !p.w.bug.silentDeath {
		p.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
	}
}

func (p *process) Freeze(t T) {
	p.pipe.set(false, true)
	if !p.w.bug.neverReplaced {
		p.later(500*time.Millisecond, func() { p.Kill(t) })
	}
}

func (p *process) Resume(T) { p.pipe.set(false, false) }
