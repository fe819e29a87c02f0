package fault

import (
	"context"
	"errors"
	"time"
)

// servers are faults of servers that go on running.
var servers = []Fault{
	{
		Name: "read-only", Does: "the servers refuse writes, as with a full disk", ActsTTLs: 1.5,
		Needs:  []Capability{CapRival, CapReadOnly},
		Inject: func(ctx context.Context, s *Setup) error { return s.ReadOnly(ctx, true) },
		Heal:   func(ctx context.Context, s *Setup) error { return s.ReadOnly(ctx, false) },
	},
	{
		Name: "pool-exhausted", Does: "the servers end all connections and take no new ones", ActsTTLs: 1.5,
		Needs:  []Capability{CapRival, CapExhaust},
		Inject: func(ctx context.Context, s *Setup) error { return s.Exhaust(ctx, true) },
		Heal:   func(ctx context.Context, s *Setup) error { return s.Exhaust(ctx, false) },
	},
	{
		Name: "slow-server", Does: "the servers get a third of the time", KeepsLeases: true, ActsTTLs: 1.5,
		Needs:  []Capability{CapRival, CapServers},
		Inject: slow,
		Heal:   func(_ context.Context, s *Setup) error { return s.EndBackground() },
	},
}

// slow lets servers run for 10 ms and stand still for 20 ms, over and over.
func slow(_ context.Context, s *Setup) error {
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- alternate(s.Servers, stop) }()
	s.stop = func() error {
		close(stop)
		return <-done
	}
	return nil
}

func alternate(servers []Server, stop chan struct{}) error {
	for {
		err := each(servers, Server.Freeze)
		time.Sleep(20 * time.Millisecond)
		if err = errors.Join(err, each(servers, Server.Resume)); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// EndBackground ends what a fault does in the background, and waits for it.
func (s *Setup) EndBackground() error {
	if s.stop == nil {
		return nil
	}
	stop := s.stop
	s.stop = nil
	return stop()
}
