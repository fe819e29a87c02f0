package store

import (
	"context"

	"github.com/lockbench/lockbench/core/driver"
)

// Counter reads how many commands the servers of a backend have been given, by
// their own counters. It is used by one goroutine.
type Counter struct {
	nodes float64
	own   float64 // what one reading adds to each node
	reads float64
	total func(ctx context.Context) (run, sent float64, err error) // over all nodes
	close func() error
}

// Read returns the mean number for a node, since some time in the past, without
// those of the counter itself. Of what was run, sent are those that clients have
// asked for themselves: for Redis, if they send only scripts, subscriptions and
// pings, as the plugins do.
func (c *Counter) Read(ctx context.Context) (run, sent float64, err error) {
	run, sent, err = c.total(ctx)
	c.reads++
	return run/c.nodes - c.own*c.reads, sent / c.nodes, err
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
