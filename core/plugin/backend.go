package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// waitSlack is the time that a call of Wait may take beyond its parameter max. If the call takes
// longer, the host checks whether the plugin still answers.
const waitSlack = 2 * time.Second

// noTimeout is for a call that ends with ctx. If the plugin hangs, a missed heartbeat ends the call.
const noTimeout = 0

// backend is the driver.Backend of a supervised plugin.
type backend struct {
	launcher *launcher
	watchers watchers
	props    atomic.Pointer[driver.Properties]

	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	closeOnce sync.Once
	closing   context.Context // ctx of the first call of Close
	closeErr  error           // set before done is closed
	done      chan struct{}   // closed when the goroutine of supervise has ended

	mu      sync.Mutex
	current *process // nil while the plugin is down
	downErr error
	closed  bool
}

var (
	_ driver.Waiter   = (*backend)(nil)
	_ driver.Notifier = (*backend)(nil)
	_ driver.Observer = (*backend)(nil)
	_ driver.Watcher  = (*backend)(nil)
	_ driver.Batcher  = (*backend)(nil)
	_ driver.Admin    = (*backend)(nil)
)

func newBackend(l *launcher, p *process) *backend {
	b := &backend{launcher: l, done: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.install(p)
	go b.supervise(p)
	return b
}

func (b *backend) process() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current
}

func (b *backend) live() (*process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("plugin %q: %w", b.launcher.name, driver.ErrClosed)
	}
	if b.current == nil {
		return nil, fmt.Errorf("%w (%w): %w", driver.ErrUnavailable, driver.ErrNotSent, b.downErr)
	}
	return b.current, nil
}

// call runs the function do. If ctx has no deadline, timeout applies, unless it is noTimeout. If the
// deadline passes, call asks for a heartbeat at once, so that a frozen plugin is replaced before its
// leases expire.
func (b *backend) call(ctx context.Context, timeout time.Duration, do func(context.Context, wire.Link) error) error {
	p, err := b.live()
	if err != nil {
		return err
	}
	if _, has := ctx.Deadline(); !has && timeout != noTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = do(ctx, p.link)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		p.doubt()
	}
	return err
}

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (token uint64, err error) {
	err = b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error {
		token, err = l.TryAcquire(ctx, r)
		return err
	})
	return token, err
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	return b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error { return l.Renew(ctx, r) })
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	if r.Token == 0 {
		return fmt.Errorf("%w: release of %q without a token", driver.ErrInvalid, r.Name)
	}
	return b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error { return l.Release(ctx, r) })
}

func (b *backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error { return l.Withdraw(ctx, name, owner) })
}

func (b *backend) Inspect(ctx context.Context, name string) (h driver.Holder, err error) {
	err = b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error {
		h, err = l.Inspect(ctx, name)
		return err
	})
	return h, err
}

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error { return l.Proclaim(ctx, r) })
}

func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return b.call(ctx, noTimeout, func(ctx context.Context, l wire.Link) error { return l.Observe(ctx, name, emit) })
}

func (b *backend) Wait(ctx context.Context, r driver.Request, max time.Duration) (g driver.Grant, err error) {
	err = b.call(ctx, max+waitSlack, func(ctx context.Context, l wire.Link) error {
		g, err = l.Wait(ctx, r, max)
		return err
	})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer from the plugin in %v", driver.ErrUnavailable, max+waitSlack)
	}
	return g, err
}

func (b *backend) Notify(ctx context.Context, name string, emit func()) error {
	return b.call(ctx, noTimeout, func(ctx context.Context, l wire.Link) error { return l.Notify(ctx, name, emit) })
}

// Watch implements driver.Watcher. It emits NoticeDown and NoticeUp for the plugin process, and all
// notices that come from the backend in the plugin.
func (b *backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	remove := b.watchers.add(emit)
	defer remove()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ctx.Done():
		return fmt.Errorf("plugin %q: %w", b.launcher.name, driver.ErrClosed)
	}
}

func (b *backend) Batch(ctx context.Context, ops []driver.Op) (results []driver.Result) {
	err := b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error {
		results = l.Batch(ctx, ops)
		for _, r := range results {
			if errors.Is(r.Err, context.DeadlineExceeded) {
				return r.Err
			}
		}
		return nil
	})
	if results == nil && err != nil {
		results = wire.FailAll(len(ops), err)
	}
	return results
}

func (b *backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	return b.call(ctx, noTimeout, func(ctx context.Context, l wire.Link) error { return l.List(ctx, prefix, emit) })
}

func (b *backend) Break(ctx context.Context, name string, token uint64) error {
	return b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error { return l.Break(ctx, name, token) })
}

func (b *backend) Check(ctx context.Context) error {
	return b.call(ctx, callTimeout, func(ctx context.Context, l wire.Link) error {
		props, err := l.Check(ctx)
		if err == nil {
			b.setProperties(props)
		}
		return err
	})
}

// Properties implements driver.Backend. It returns the properties that the plugin declared last.
func (b *backend) Properties() driver.Properties { return *b.props.Load() }

// setProperties stores p without capabilities that package core cannot use, and adds CapWatcher.
func (b *backend) setProperties(p driver.Properties) {
	p.Capabilities = slices.DeleteFunc(slices.Clone(p.Capabilities), func(capability driver.Capability) bool {
		return slices.Contains([]driver.Capability{driver.CapStarter, driver.CapWithdraw}, capability)
	})
	if !slices.Contains(p.Capabilities, driver.CapWatcher) {
		p.Capabilities = append(p.Capabilities, driver.CapWatcher)
	}
	b.props.Store(&p)
}

// Close implements driver.Backend. It makes the goroutine in backend.supervise end the plugin, and
// waits for that goroutine. If ctx ends first, Close kills the plugin, which makes the wait short.
func (b *backend) Close(ctx context.Context) error {
	b.closeOnce.Do(func() {
		b.closing = context.WithoutCancel(ctx)
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.cancel()
	})
	stop := context.AfterFunc(ctx, func() {
		if p := b.process(); p != nil {
			p.run.kill()
		}
	})
	defer stop()
	<-b.done
	b.launcher.log.flush(ctx)
	return b.closeErr
}

// watchers passes each notice to all watchers. All watchers get the notices in one order. No notice
// waits in a queue, so package core learns of a plugin's death before a new plugin gets a request.
type watchers struct {
	mu   sync.Mutex
	all  map[*func(driver.Notice)]struct{}
	down *driver.Notice // the notice that the plugin is down; nil while it is up
}

// notify passes the notice n to every watcher, and returns when all these calls have returned.
func (w *watchers) notify(n driver.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.Plugin {
		w.down = nil
		if n.Kind == driver.NoticeDown {
			w.down = &n
		}
	}
	for emit := range w.all {
		(*emit)(n)
	}
}

// add registers the function emit for all later notices. If the plugin is down, add calls emit with
// the notice in w.down. After the function remove has returned, emit is not called any more.
func (w *watchers) add(emit func(driver.Notice)) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		emit(*w.down)
	}
	if w.all == nil {
		w.all = map[*func(driver.Notice)]struct{}{}
	}
	key := &emit
	w.all[key] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, key)
	}
}
