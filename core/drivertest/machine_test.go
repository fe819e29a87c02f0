package drivertest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

type machine struct {
	w      *fixture
	p      *process
	client *core.Client
	out    *valve        // the connection between the host and its plugin
	delay  time.Duration // from the host's death to the release

	mu     sync.Mutex
	leases map[string]held
	waits  int // number of Acquires that have begun to wait
}

func (w *fixture) host(t T, delay time.Duration) Host {
	m := &machine{w: w, delay: delay, p: w.process(w.store), out: newValve(), leases: map[string]held{}}
	m.client = core.New(m.p.calls.behind(m.out), &core.Options{Logger: slog.New(slog.DiscardHandler), OnEvent: func(e core.Event) {
		if m.mu.Lock(); e.Kind == core.EventWaiting {
			m.waits++
		}
		m.mu.Unlock()
	}})
	t.Cleanup(func() {
		m.out.set(false, false)
		_ = m.client.Close(context.Background())
	})
	return m
}

func (m *machine) Pid() int        { return 1 }
func (m *machine) Plugin() Process { return m.p }
func (m *machine) Resume(T)        { m.out.set(false, false) }

func (m *machine) Freeze(T) {
	m.out.set(false, true)
	if m.w.bug.pluginRenews {
		for _, r := range m.p.held {
			r.TTL = time.Minute
			_ = m.p.link.renew(context.Background(), r)
		}
	}
}

func (m *machine) Kill(T) {
	m.out.set(true, false)
	if m.w.bug.abandons {
		return
	}
	if m.delay == 0 {
		m.p.hostDied()
		return
	}
	m.p.later(m.delay, m.p.hostDied)
	m.p.renewFor(m.delay)
}

func (m *machine) Acquire(t T, name string, ttl, atLeast time.Duration) (uint64, error) {
	lock, err := m.client.Lock(name, &core.LockOptions{TTL: ttl, AtLeast: atLeast})
	if err != nil {
		return 0, err
	}
	lease, err := m.w.bug.hook.apply(lock.TryAcquire(t.Context()))
	if err != nil {
		return 0, err
	}
	m.keep(name, lease)
	return lease.Token(), nil
}

func (m *machine) keep(name string, l held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases[name] = l
}

func (m *machine) lease(name string) held {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leases[name]
}

func (m *machine) Enqueue(t T, name string, ttl, atLeast time.Duration) {
	lock, err := m.client.Lock(name, &core.LockOptions{TTL: ttl, AtLeast: atLeast})
	if err != nil {
		t.Fatalf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lease, err := m.w.bug.hook.apply(lock.Acquire(ctx)); err == nil {
			m.keep(name, lease)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, time.Second, "the host waits", func() bool {
		m.p.mu.Lock()
		defer m.p.mu.Unlock()
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.waits > 0 && (len(m.p.held) > 0 || len(m.p.queued) > 0 || m.w.bug.lacks == driver.CapWaiter)
	})
}

func (m *machine) State(_ T, name string) (valid, done bool, cause string) {
	l := m.lease(name)
	valid = l.Valid()
	select {
	case <-l.Done():
		done = true
	default:
	}
	return valid, done, core.CauseName(l.Err())
}

func (m *machine) Release(t T, name string) error { return m.lease(name).Release(t.Context()) }
