package redisnode

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	replicas   int
	major      int
	loading    bool
	clustered  bool
	// Sentinel reports whether this is no server for data.
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

// Conn is a client, or one connection of it.
type Conn interface {
	processor
	Pipeline() goredis.Pipeliner
}

// ReadServer asks the server of a new connection about itself, in one round
// trip. INFO is enough but for how often it syncs, because managed servers
// hide CONFIG.
func ReadServer(ctx context.Context, c Conn) (Server, error) { return readServer(ctx, c, nil, false) }

// Probe is ReadServer with an error when this client has not the rights that it
// needs on the keys and channels of the prefix.
func (n *Node) Probe(ctx context.Context, c Conn) (Server, error) {
	return readServer(ctx, c, n.invoke(probeScript, []string{n.opts.Keys.Nobody()}, false, []any{n.opts.ID}), n.opts.WaitReplicas > 0)
}

// Check is Probe of any connection, and of a new one when that leads to a server
// that does not serve. It may outlast ctx when that is cancelled.
func (n *Node) Check(ctx context.Context) (Server, error) {
	sent := time.Now()
	s, err := n.Probe(ctx, n.client)
	if n.opts.Links != nil && (s.Replica() || Astray(err)) {
		n.opts.Links.Leave(sent)
		s, err = n.Probe(ctx, n.client)
	}
	return s, Explain(err)
}

// Replica reports whether the server was a replica when it was asked.
func (s Server) Replica() bool { return s.role == "slave" }

func readServer(ctx context.Context, c Conn, probe *invocation, waits bool) (Server, error) {
	pipe := c.Pipeline()
	info := goredis.NewStringCmd(ctx, "info")
	fsync := goredis.NewMapStringStringCmd(ctx, "config", "get", "appendfsync")
	_ = pipe.Process(ctx, info)
	_ = pipe.Process(ctx, fsync)
	var named, ack *goredis.Cmd
	if probe != nil {
		// Both ways of running a script: which one is needed changes with what
		// the server has in its cache.
		probe.send(ctx, pipe, true)
		whole := probe.cmd
		probe.send(ctx, pipe, false)
		named, probe.cmd = probe.cmd.Cmd, whole
	}
	if waits {
		ack = pipe.Do(ctx, "wait", 0, 1)
	}
	_, err := pipe.Exec(ctx)
	if info.Val() == "" {
		return Server{}, cmp.Or(info.Err(), err)
	}
	s := parseServer(info.Val(), fsync.Val())
	if probe == nil {
		return s, nil
	}
	for _, cmd := range []*goredis.Cmd{probe.cmd.Cmd, named, ack} {
		if cmd != nil && cmd.Val() == nil {
			return s, cmp.Or(cmd.Err(), err)
		}
	}
	return s, nil
}

// Replicates returns an error when the server has fewer replicas than must
// confirm a grant, and spare reports whether it has one more. Without one that
// is to spare a failover confirms nothing until the old master has come back as
// a replica, which takes Sentinel longer than most leases last.
func (s Server) Replicates(addr string, wanted int) (spare bool, err error) {
	if s.replicas < wanted {
		err = fmt.Errorf("%w: %w: %s has %d replicas and wait_replicas is %d, so nothing is granted; have %d, or a failover ends every lease",
			driver.ErrUnavailable, driver.ErrNotSent, addr, s.replicas, wanted, wanted+1)
	}
	return s.replicas > wanted, err
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
		Sentinel: cmp.Or(fields["redis_mode"], fields["server_mode"]) == "sentinel", // the latter of Valkey
	}
	if v := fields["valkey_version"]; v != "" {
		s.Version = "Valkey " + v
	}
	major, _, _ := strings.Cut(fields["redis_version"], ".")
	s.major, _ = strconv.Atoi(major)
	s.replicas, _ = strconv.Atoi(fields["connected_slaves"])
	s.loading, s.clustered = fields["loading"] == "1", fields["cluster_enabled"] == "1"
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
// be. In a Cluster replicas are asked too, for the slots alone. With served a
// master was here before: then a replica is no mistake of the address, but a
// failover that is under way.
func (s Server) Unsafe(addr string, how Topology, served bool) error {
	switch {
	case s.Sentinel && how == Sentinels:
		return nil
	case s.Sentinel:
		return fmt.Errorf("%w: %w: %s is a sentinel: set sentinel_master to the name of the master that it watches", driver.ErrDenied, driver.ErrNotSent, addr)
	case s.major > 0 && s.major < 6:
		return fmt.Errorf("%w: %s runs %s; version 6.0 or later is needed", driver.ErrDenied, addr, s.Version)
	case s.clustered && how != Cluster:
		return fmt.Errorf("%w: %w: %s is a node of a Cluster: set cluster", driver.ErrDenied, driver.ErrNotSent, addr)
	case s.Replica() && how == Alone && !served:
		return fmt.Errorf("%w: %s is a read-only replica of %s; give the master's address, or sentinel_master",
			driver.ErrDenied, addr, s.master)
	case s.Replica() && how != Cluster:
		return fmt.Errorf("%w: %w: %s is a replica of %s now: a failover is under way", driver.ErrUnavailable, driver.ErrNotSent, addr, s.master)
	case s.loading:
		return fmt.Errorf("%w: %w: %s is still loading its data", driver.ErrUnavailable, driver.ErrNotSent, addr)
	}
	return nil
}
