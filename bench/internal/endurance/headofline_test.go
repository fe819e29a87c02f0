package endurance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/plugins/memory"
)

// blockedName is the lock that nobody gets while the gate is shut.
const blockedName = "blocked"

// TestHeadOfLine: a call that does not end holds up no other one on its way to the
// plugin. Rows that a foreign transaction locks, and nodes that stall, are kept
// schedules of bench/internal/faults.
func TestHeadOfLine(t *testing.T) {
	g := &gated{Backend: memory.NewStore().Open(), gate: make(chan struct{})}
	client := core.New(plugintest.Loopback(t, g), nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stuck := make(chan error, 1)
	go func() {
		lock, err := client.Lock(blockedName, nil)
		if err == nil {
			err = once(ctx, lock)
		}
		stuck <- err
	}()
	cycles(t, client, cyclers, "passer", int64(cyclers*count(6, 1000)), false)
	if len(stuck) > 0 {
		t.Errorf("nobody was blocked: the acquire of %q ended with %v", blockedName, <-stuck)
		return
	}
	close(g.gate)
	if err := <-stuck; err != nil {
		t.Errorf("the acquire of %q, once nothing blocks it: %v", blockedName, err)
	}
}

// gated is a backend in which an acquire of one name does not end while its
// gate is shut.
type gated struct {
	driver.Backend
	gate chan struct{} // closed: open
}

func (g *gated) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	if r.Name == blockedName {
		select {
		case <-g.gate:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", driver.ErrNotSent, ctx.Err())
		}
	}
	return g.Backend.TryAcquire(ctx, r)
}

// Properties declares no capabilities, so that every request is a call of its own.
func (g *gated) Properties() driver.Properties {
	p := g.Backend.Properties()
	p.Capabilities = nil
	return p
}
