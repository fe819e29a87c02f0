package plugintest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
	"github.com/lockbench/lockbench/internal/proc"
)

type host struct {
	parent  *proc.Parent
	backend driver.Backend
	client  *core.Client

	mu      sync.Mutex
	leases  map[string]*core.Lease
	waiting map[string]chan struct{} // by lock name; closed when the Acquire of enqueue waits or has got the lock
	wg      sync.WaitGroup
}

func openHost(parent *proc.Parent, spec HostSpec) (proc.Agent[command], error) {
	quiet := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(context.Background(), spec.Plugin, &plugin.Options{
		Path: spec.Path, Config: spec.Config, NoMTLS: spec.NoMTLS, OnHostDeath: spec.OnHostDeath,
		StartTimeout: startTimeout, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	h := &host{parent: parent, backend: b, leases: map[string]*core.Lease{}, waiting: map[string]chan struct{}{}}
	h.client = core.New(b, &core.Options{Logger: quiet, OnEvent: h.event})
	return h, nil
}

// event gets the events of the host's client. If the Acquire that enqueue started waits or has got
// the lock, event makes enqueue return.
func (h *host) event(e core.Event) {
	if e.Kind != core.EventWaiting && e.Kind != core.EventAcquired {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if waits := h.waiting[e.Name]; waits != nil {
		close(waits)
		delete(h.waiting, e.Name)
	}
}

// Close implements proc.Agent.
func (h *host) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
	defer cancel()
	err := h.client.Close(ctx)
	h.wg.Wait()
	return err
}

// Do implements proc.Agent.
func (h *host) Do(_ context.Context, c command) {
	do := map[string]func(command) (reply, error){
		"acquire": h.tryAcquire, "enqueue": h.enqueue, "state": h.state, "release": h.release, "plugin": h.plugin,
	}[c.Op]
	r, err := do(c)
	r.Error = wire.EncodeError(err, nil)
	h.parent.Send(r)
}

func (h *host) plugin(command) (reply, error) { return reply{Pid: pluginPid(h.backend)}, nil }

func (h *host) tryAcquire(c command) (reply, error) { return h.acquire(c, (*core.Lock).TryAcquire) }

func (h *host) acquire(c command, do func(*core.Lock, context.Context) (*core.Lease, error)) (reply, error) {
	lock, err := h.client.Lock(c.Name, &core.LockOptions{TTL: c.TTL, AtLeast: c.AtLeast})
	if err != nil {
		return reply{}, err
	}
	lease, err := do(lock, context.Background())
	if err != nil {
		return reply{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases[c.Name] = lease
	return reply{Token: lease.Token()}, nil
}

// enqueue calls Acquire in a new goroutine, and returns when this Acquire waits or has got the
// lock. When the host's client is closed, the Acquire ends.
func (h *host) enqueue(c command) (r reply, err error) {
	waits := make(chan struct{})
	h.mu.Lock()
	h.waiting[c.Name] = waits
	h.mu.Unlock()
	failed := make(chan error, 1)
	h.wg.Go(func() {
		if _, err := h.acquire(c, (*core.Lock).Acquire); err != nil {
			failed <- err
		}
	})
	select {
	case <-waits:
	case err = <-failed:
	}
	return r, err
}

// state calls lease.Valid first, because test cases check the first result after a pause.
func (h *host) state(c command) (r reply, err error) {
	lease, err := h.lease(c.Name)
	if err != nil {
		return r, err
	}
	r.Valid = lease.Valid()
	select {
	case <-lease.Done():
		r.Done = true
	default:
	}
	r.Cause = core.CauseName(lease.Err())
	return r, nil
}

func (h *host) release(c command) (reply, error) {
	lease, err := h.lease(c.Name)
	if err != nil {
		return reply{}, err
	}
	return reply{}, lease.Release(context.Background())
}

func (h *host) lease(name string) (*core.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease := h.leases[name]; lease != nil {
		return lease, nil
	}
	return nil, errors.New("this host process has never acquired that lock")
}

// role is the environment variable that makes HostMain run the binary as a host process.
const role = "LOCKBENCH_HOST_PROCESS"

// HostSpec says which plugin a host process opens.
type HostSpec struct {
	Plugin      string // name of the backend
	Path        string // path of the plugin's binary; "" means to search by name
	Config      driver.Config
	NoMTLS      bool
	OnHostDeath plugin.Policy
}

// command is one line on a host process's standard input.
type command struct {
	Op      string        `json:"op"` // acquire, enqueue, state, release, plugin
	Name    string        `json:"name,omitempty"`
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	AtLeast time.Duration `json:"at_least_ns,omitempty"`
}

// reply is one line on a host process's standard output. It answers one command.
type reply struct {
	Error *lockpb.Error `json:"error,omitempty"` // keeps sentinel errors
	Token uint64        `json:"token,omitempty"`
	Valid bool          `json:"valid,omitempty"`
	Done  bool          `json:"done,omitempty"`
	Cause string        `json:"cause,omitempty"`
	Pid   int           `json:"pid,omitempty"` // id of the plugin process; 0 if it is down
}

// HostMain runs the host process and does not return if [StartHost] has started this process.
// Otherwise it does nothing. Call HostMain first in main or TestMain.
func HostMain() { proc.Become(role, "host process", openHost) }
