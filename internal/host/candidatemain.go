package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
)

// resign is the only order that a candidate takes after its campaign.
const resign = "resign"

// candidate is the state of such a process.
type candidate struct {
	Campaign
	parent *proc.Parent
	clock  proc.Clock
	locker load.Locker
	pid    int // of the plugin

	mu    sync.Mutex
	terms map[int32]*term // by name
}

// candidateMain reads the campaign and then orders, until its input ends.
func candidateMain(parent *proc.Parent) error {
	c := &candidate{parent: parent, clock: proc.MachineClock(), terms: map[int32]*term{}}
	if err := parent.Receive(&c.Campaign); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := c.open(ctx); err != nil {
		c.report(Report{Kind: Failed, Cause: err.Error()})
		return nil // whoever has started it says so
	}
	c.report(Report{Kind: Ready, Pid: c.pid})
	var work sync.WaitGroup
	work.Go(func() { c.work(ctx) })
	for i, name := range c.Names {
		work.Go(func() { c.campaign(ctx, int32(i), name) })
	}
	for {
		var order string
		if parent.Receive(&order) != nil {
			break
		}
		c.resign()
	}
	cancel()
	work.Wait()
	closing, done := context.WithTimeout(context.Background(), closeBudget)
	defer done()
	// What it held was reported; a session that has expired is no surprise.
	_ = c.locker.Close(closing)
	return nil
}

func (c *candidate) open(ctx context.Context) error {
	if c.Baseline != "" {
		bl, ok := baseline.ByName(c.Baseline)
		if !ok {
			return fmt.Errorf("there is no baseline %q", c.Baseline)
		}
		var err error
		c.locker, err = bl.Open(ctx, c.Config)
		return err
	}
	b, err := c.Spec.open(ctx)
	if err != nil {
		return err
	}
	c.pid, _ = plugin.ProcessOf(b)
	c.locker = load.NewCore(b, &core.Options{Logger: quiet, OnEvent: c.event})
	return nil
}

func (c *candidate) report(r Report) {
	_ = c.parent.Send(r) // nobody reads it any more when it fails
}
