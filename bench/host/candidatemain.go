package host

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/baseline"
	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
)

// envCandidate makes a binary that calls CandidateMain a candidate.
const envCandidate = "LOCKBENCH_CANDIDATE"

// resign is the only order that a candidate takes after its campaign.
const resign = "resign"

const (
	// startTimeout is how long a plugin may take until it is open: many start at
	// once on a machine that has other things to do.
	startTimeout = 30 * time.Second
	// closeBudget bounds the orderly end of a candidate.
	closeBudget = 4 * time.Second
)

// CandidateMain makes this process a candidate and ends it, when it was started
// as one; otherwise it does nothing. Call it first in main or TestMain.
func CandidateMain() { Become(envCandidate, "candidate", candidateMain) }

// candidate is the state of such a process.
type candidate struct {
	Campaign
	clock  clock
	locker load.Locker
	pid    int // of the plugin

	mu    sync.Mutex
	out   *json.Encoder
	terms map[int32]*term // by name
}

// candidateMain reads the campaign and then orders, until its input ends.
func candidateMain(stdin io.Reader, stdout io.Writer) error {
	in := json.NewDecoder(bufio.NewReader(stdin))
	c := &candidate{out: json.NewEncoder(stdout), terms: map[int32]*term{}}
	if err := in.Decode(&c.Campaign); err != nil {
		return err
	}
	c.clock = newClock()
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
		if in.Decode(&order) != nil {
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
	quiet := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(ctx, c.Backend, &plugin.Options{Path: c.Path, Config: c.Config, NoMTLS: c.NoMTLS, StartTimeout: startTimeout, Logger: quiet})
	if err != nil {
		return err
	}
	c.pid, _ = plugin.ProcessOf(b)
	c.locker = load.NewCore(b, &core.Options{Logger: quiet, OnEvent: c.event})
	return nil
}

func (c *candidate) report(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(r) // nobody reads it any more when it fails
}
