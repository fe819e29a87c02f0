package servers

import "context"

// Served is the work that a server has done since an unknown time in the past. A figure that the
// server does not report is NaN.
type Served struct {
	// Run counts all commands. Sent counts only the commands that clients sent, and not the commands
	// that scripts ran. For Redis, Sent is right only if clients send nothing but scripts,
	// subscriptions and pings. Plugins send hardly anything else.
	Run, Sent float64
	// Busy is the time in nanoseconds that the server has worked on the commands in Sent.
	Busy float64
}

// Since returns the work that the server has done since an earlier reading.
func (s Served) Since(before Served) Served {
	return Served{s.Run - before.Run, s.Sent - before.Sent, s.Busy - before.Busy}
}

// Counter reads the number of commands that a backend's servers have received, as the servers
// themselves count them. Only one goroutine may use a Counter.
//
// Redis counts commands, including those that scripts run (total_commands_processed of INFO). MySQL
// and MariaDB count statements (Questions). etcd counts the messages that it received, both
// requests and messages in streams (grpc_server_msg_received_total of its metrics). PostgreSQL has
// no Counter, because it reports its work up to ten seconds late. In runs with a simulated
// distance, the relay in front of PostgreSQL counts statements. The relay counts a pipeline of
// statements as one statement.
type Counter struct {
	Own   float64 // commands that one reading adds to the count of each node
	Reads float64 // number of readings, including the reading in progress
	Nodes []func(ctx context.Context) (Served, error)
	End   func() error // closes the counter's connections
}

// Read returns the average work per server. It omits the commands that the counter has sent.
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

func (c *Counter) Close() error { return c.End() }
