package servers

import "context"

// Served is the work of a server since some time in the past. Figures that it does
// not give are NaN.
type Served struct {
	// Run counts all commands. Sent counts the ones that clients sent themselves. For
	// Redis it needs clients that send only scripts, subscriptions and pings, as the
	// plugins do.
	Run, Sent float64
	// Busy is how many nanoseconds the server has worked on the sent commands.
	Busy float64
}

// Since is the work after an earlier reading.
func (s Served) Since(before Served) Served {
	return Served{s.Run - before.Run, s.Sent - before.Sent, s.Busy - before.Busy}
}

// Counter reads how many commands the servers of a backend have been given, by
// their own counters. It is used by one goroutine.
//
// Redis counts commands, those that scripts run among them (total_commands_processed of
// INFO); MySQL and MariaDB count statements (Questions); etcd counts messages that it
// received, requests as well as those in streams (grpc_server_msg_received_total of its
// metrics). PostgreSQL has no counter here, because it reports its work up to ten
// seconds late. Where it is at a distance, the relay counts what clients send, a
// pipeline of statements once.
type Counter struct {
	Own   float64 // commands that one reading adds to each node
	Reads float64 // number of readings, with the one under way
	Nodes []func(ctx context.Context) (Served, error)
	End   func() error // ends its connections
}

// Read returns the mean over the nodes, without the counter's own commands.
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
