package servers

import "context"

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
//
// Redis counts commands, those that scripts run among them
// (total_commands_processed of INFO); MySQL and MariaDB count statements (Questions);
// etcd counts messages that it received, requests as well as those in streams
// (grpc_server_msg_received_total of its metrics). PostgreSQL tells what it has done up
// to ten seconds late, and has none; where it is at a distance, the relay counts what
// clients send, a pipeline of statements once.
type Counter struct {
	Own   float64 // what one reading adds to each node
	Reads float64 // how many there were, with the one under way
	Nodes []func(ctx context.Context) (Served, error)
	End   func() error // ends its connections
}

// Read returns the mean of a node, without what the counter itself has asked for.
func (c *Counter) Read(ctx context.Context) (Served, error) {
	c.Reads++
	var sum Served
	for _, node := range c.Nodes {
		s, err := node(ctx)
		if err != nil {
			return Served{}, err
		}
		sum = Served{sum.Run + s.Run, sum.Sent + s.Sent, sum.Busy + s.Busy}
	}
	n := float64(len(c.Nodes))
	return Served{sum.Run/n - c.Own*c.Reads, sum.Sent / n, sum.Busy / n}, nil
}

// Close ends its connections.
func (c *Counter) Close() error { return c.End() }
