package store

import (
	"context"

	"github.com/lockbench/lockbench/core/driver"
)

// Served is what a server has done since some time in the past. What it does not
// tell is NaN.
type Served struct {
	// Run are all commands. Sent are those of them that clients have asked for
	// themselves: for Redis, if they send only scripts, subscriptions and pings, as
	// the plugins do.
	Run, Sent float64
	// Busy is for how many nanoseconds the server has worked on what was sent.
	Busy float64
}

// Since is what it has done after an earlier reading.
func (s Served) Since(before Served) Served {
	return Served{s.Run - before.Run, s.Sent - before.Sent, s.Busy - before.Busy}
}

// Counter reads how many commands the servers of a backend have been given, by
// their own counters. It is used by one goroutine.
type Counter struct {
	own   float64 // what one reading adds to each node
	reads float64
	nodes []func(ctx context.Context) (Served, error)
	close func() error
}

// Read returns the mean of a node, without what the counter itself has asked for.
func (c *Counter) Read(ctx context.Context) (Served, error) {
	c.reads++
	var sum Served
	for _, node := range c.nodes {
		s, err := node(ctx)
		if err != nil {
			return Served{}, err
		}
		sum = Served{sum.Run + s.Run, sum.Sent + s.Sent, sum.Busy + s.Busy}
	}
	n := float64(len(c.nodes))
	return Served{sum.Run/n - c.own*c.reads, sum.Sent / n, sum.Busy / n}, nil
}

// Close ends its connections.
func (c *Counter) Close() error { return c.close() }

// Counter connects to the servers of the store. It returns nil for one that has
// none, or none that count.
//
// Redis counts commands, those that scripts run among them
// (total_commands_processed of INFO); MySQL and MariaDB count statements
// (Questions); etcd counts messages that it received, requests as well as those
// in streams (grpc_server_msg_received_total of its metrics).
func (s *Store) Counter(cfg driver.Config) (*Counter, error) {
	if s.counter == nil {
		return nil, nil
	}
	return s.counter(cfg)
}
