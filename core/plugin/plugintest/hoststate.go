package plugintest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
)

// host is the state of a host process.
type host struct {
	backend driver.Backend
	client  *core.Client

	mu      sync.Mutex
	leases  map[string]*core.Lease
	waiting map[string]chan struct{} // closed when an enqueued acquire waits
	wg      sync.WaitGroup
}

func openHost(ctx context.Context, spec HostSpec) (*host, error) {
	quiet := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(ctx, spec.Plugin, &plugin.Options{
		Path: spec.Path, Config: spec.Config, NoMTLS: spec.NoMTLS, OnHostDeath: spec.OnHostDeath,
		StartTimeout: startTimeout, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	h := &host{backend: b, leases: map[string]*core.Lease{}, waiting: map[string]chan struct{}{}}
	h.client = core.New(b, &core.Options{Label: spec.Label, Logger: quiet, OnEvent: h.event})
	return h, nil
}

func (h *host) event(e core.Event) {
	if e.Kind == core.EventWaiting || e.Kind == core.EventAcquired {
		h.nowWaits(e.Name)
	}
}

// nowWaits ends the enqueue command for name, if there is one.
func (h *host) nowWaits(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if waits := h.waiting[name]; waits != nil {
		close(waits)
		delete(h.waiting, name)
	}
}

func (h *host) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
	defer cancel()
	err := h.client.Close(ctx)
	h.wg.Wait()
	return err
}

func (h *host) do(c command) (r reply) {
	switch c.Op {
	case "acquire":
		token, err := h.acquire(c)
		r.Token = token
		r.setError(err)
	case "enqueue":
		r.setError(h.enqueue(c))
	case "state":
		r = h.state(c.Name)
	case "release":
		r.setError(h.release(c.Name))
	case "plugin":
		r.Pid = pluginPid(h.backend)
	default:
		r.setError(fmt.Errorf("unknown command %q", c.Op))
	}
	return r
}

func (h *host) acquire(c command) (uint64, error) {
	lock, err := h.client.Lock(c.Name, &core.LockOptions{
		TTL: time.Duration(c.TTLNs), AtLeast: time.Duration(c.AtLeastNs),
	})
	if err != nil {
		return 0, err
	}
	lease, err := acquireWithin(lock, time.Duration(c.TimeoutNs))
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases[c.Name] = lease
	return lease.Token(), nil
}

// acquireWithin tries once without a timeout.
func acquireWithin(lock *core.Lock, timeout time.Duration) (*core.Lease, error) {
	if timeout <= 0 {
		return lock.TryAcquire(context.Background())
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return lock.Acquire(ctx)
}

// enqueue returns when the acquire waits, or was granted at once. It ends with
// the client.
func (h *host) enqueue(c command) error {
	waits := make(chan struct{})
	h.mu.Lock()
	h.waiting[c.Name] = waits
	h.mu.Unlock()
	lock, err := h.client.Lock(c.Name, &core.LockOptions{TTL: time.Duration(c.TTLNs)})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	h.wg.Go(func() {
		lease, err := lock.Acquire(context.Background())
		if err != nil {
			failed <- err
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leases[c.Name] = lease
	})
	select {
	case <-waits:
		return nil
	case err := <-failed:
		return err
	}
}

// state looks at Valid first: after a pause it must answer at once.
func (h *host) state(name string) (r reply) {
	lease, err := h.lease(name)
	if err != nil {
		r.setError(err)
		return r
	}
	r.Valid = lease.Valid()
	select {
	case <-lease.Done():
		r.Done = true
	default:
	}
	r.Cause = core.CauseName(lease.Err())
	return r
}

func (h *host) release(name string) error {
	lease, err := h.lease(name)
	if err != nil {
		return err
	}
	return lease.Release(context.Background())
}

var errNoLease = errors.New("this host process has never acquired that lock")

func (h *host) lease(name string) (*core.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lease := h.leases[name]
	if lease == nil {
		return nil, errNoLease
	}
	return lease, nil
}
