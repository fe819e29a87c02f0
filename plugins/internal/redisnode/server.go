package redisnode

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

// Server is what a server says about itself.
type Server struct {
	Version    string // product and version: "Redis 7.2.4"
	Durability string // what a grant survives: "appendfsync everysec"
	RunID      string // changes with every start
	role       string
	master     string
	policy     string
	major      int
	// Sentinel tells that this is no server for data.
	Sentinel bool
}

// Topology is how the master of a key is found.
type Topology int

// The topologies.
const (
	Alone     Topology = iota // one server, which must be a master
	Sentinels                 // sentinels know the master
	Cluster                   // each slot has its master
)

// ReadServer asks the server of a new connection about itself, in one round
// trip. INFO is enough but for how often it syncs, because managed servers
// hide CONFIG.
func ReadServer(ctx context.Context, c *goredis.Conn) (Server, error) {
	pipe := c.Pipeline()
	info, fsync := askServer(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil && info.Val() == "" {
		return Server{}, err
	}
	return parseServer(info.Val(), fsync.Val()), nil
}

func askServer(ctx context.Context, p goredis.Pipeliner) (*goredis.StringCmd, *goredis.MapStringStringCmd) {
	info := goredis.NewStringCmd(ctx, "info")
	fsync := goredis.NewMapStringStringCmd(ctx, "config", "get", "appendfsync")
	_ = p.Process(ctx, info)
	_ = p.Process(ctx, fsync)
	return info, fsync
}

// Check asks the server about itself and whether it would serve this client,
// whose waiters listen as id; in one round trip once the server knows the
// script. It may outlast ctx when that is cancelled.
func (n *Node) Check(ctx context.Context, id string) (Server, error) {
	pipe := n.client.Pipeline()
	info, fsync := askServer(ctx, pipe)
	probe := n.invoke(probeScript, []string{n.opts.Keys.Lock("~")}, false, []any{id})
	probe.send(ctx, pipe, false)
	flush(ctx, pipe, []*invocation{probe})
	if probe.unknownScript() {
		probe.send(ctx, n.client, true)
	}
	for _, err := range []error{info.Err(), probe.cmd.Err()} {
		if err != nil {
			return Server{}, n.opts.Explain(err)
		}
	}
	return parseServer(info.Val(), fsync.Val()), nil
}

func parseServer(info string, config map[string]string) Server {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	s := Server{
		Version:  "Redis " + fields["redis_version"],
		RunID:    fields["run_id"],
		role:     fields["role"],
		master:   fields["master_host"] + ":" + fields["master_port"],
		policy:   fields["maxmemory_policy"],
		Sentinel: fields["redis_mode"] == "sentinel",
	}
	if v := fields["valkey_version"]; v != "" {
		s.Version = "Valkey " + v
	}
	major, _, _ := strings.Cut(fields["redis_version"], ".")
	s.major, _ = strconv.Atoi(major)
	s.Durability = durability(fields["aof_enabled"], config["appendfsync"])
	return s
}

func durability(aof, fsync string) string {
	switch {
	case aof == "0":
		return "no appendonly"
	case aof == "":
		return "unknown"
	case fsync == "":
		return "appendonly, appendfsync unknown"
	}
	return "appendfsync " + fsync
}

// Unsafe tells why locks must not be kept on this server, nil when they may
// be. In a Cluster replicas are asked too, for the slots alone.
func (s Server) Unsafe(addr string, how Topology) error {
	switch {
	case s.Sentinel:
		return nil
	case s.major > 0 && s.major < 6:
		return fmt.Errorf("%w: %s runs %s; version 6.0 or later is needed", driver.ErrDenied, addr, s.Version)
	case s.policy != "" && s.policy != "noeviction":
		return fmt.Errorf("%w: %s has maxmemory-policy %s, which may delete a lock that is held; set it to noeviction",
			driver.ErrDenied, addr, s.policy)
	case s.role == "slave" && how == Alone:
		return fmt.Errorf("%w: %s is a read-only replica of %s; give the master's address, or sentinel_master",
			driver.ErrDenied, addr, s.master)
	case s.role == "slave" && how == Sentinels:
		return fmt.Errorf("%w: %w: %s: a failover is under way", driver.ErrUnavailable, driver.ErrNotSent, addr)
	}
	return nil
}
