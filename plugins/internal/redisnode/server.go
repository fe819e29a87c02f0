package redisnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

// Server is what a Redis server says about itself.
type Server struct {
	Version    string // product and version: "Redis 7.2.4"
	Durability string // how data gets to the disk, such as "appendfsync everysec"
	RunID      string // changes with every start
	role       string
	master     string
	policy     string
	major      int
	loading    bool
	clustered  bool
	Replicas   int // connected replicas
	// Sentinel is true if the server is a sentinel, which keeps no data.
	Sentinel bool
}

// Topology says how the master of a key is found.
type Topology int

// The topologies.
const (
	Alone     Topology = iota // one server, which must be a master
	Sentinels                 // sentinels know the master
	Cluster                   // each slot has its master
)

// Conn is a client, or one of its connections.
type Conn interface {
	processor
	Pipeline() goredis.Pipeliner
}

// ReadServer asks the server of a new connection about itself, in one round trip. It reads INFO,
// because managed servers hide CONFIG. Only the sync policy (appendfsync) comes from CONFIG.
func ReadServer(ctx context.Context, c Conn) (Server, error) { return readServer(ctx, c, nil, false) }

// Probe is like ReadServer, but fails if the client's user lacks a right that requests need on the
// keys and channels with the Node's prefix.
func (n *Node) Probe(ctx context.Context, c Conn) (Server, error) {
	return readServer(ctx, c, n.invoke(probeScript, []string{n.opts.Keys.Nobody()}, false, []any{n.opts.ID}), n.opts.WaitReplicas > 0)
}

// Check is like Probe, but uses any connection of the client. If that connection leads to a server
// that does not serve, Check tries a new connection. Check may go on for a while after ctx has
// ended.
func (n *Node) Check(ctx context.Context) (Server, error) {
	sent := time.Now()
	s, err := n.Probe(ctx, n.client)
	if n.opts.Links != nil && (s.Replica() || Astray(err)) {
		n.opts.Links.Leave(sent)
		s, err = n.Probe(ctx, n.client)
	}
	return s, Explain(err)
}

// Replica reports whether the server was a replica when it was last asked.
func (s Server) Replica() bool { return s.role == "slave" }

func readServer(ctx context.Context, c Conn, probe *invocation, waits bool) (Server, error) {
	pipe := c.Pipeline()
	info, fsync := pipe.Info(ctx), pipe.ConfigGet(ctx, "appendfsync")
	var tries []*goredis.Cmd
	if probe != nil {
		for _, whole := range []bool{true, false} { // requests need EVAL and EVALSHA
			probe.send(ctx, pipe, whole)
			tries = append(tries, probe.cmd.Cmd)
		}
	}
	if waits {
		tries = append(tries, pipe.Do(ctx, "wait", 0, 1))
	}
	_, err := pipe.Exec(ctx)
	if info.Val() == "" {
		return Server{}, cmp.Or(info.Err(), err)
	}
	s := parseServer(info.Val(), fsync.Val())
	for _, cmd := range tries {
		if cmd.Val() == nil {
			return s, cmp.Or(cmd.Err(), err)
		}
	}
	return s, nil
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
		Sentinel: cmp.Or(fields["redis_mode"], fields["server_mode"]) == "sentinel", // server_mode in Valkey
	}
	if v := fields["valkey_version"]; v != "" {
		s.Version = "Valkey " + v
	}
	major, _, _ := strings.Cut(fields["redis_version"], ".")
	s.major, _ = strconv.Atoi(major)
	s.Replicas, _ = strconv.Atoi(fields["connected_slaves"])
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

// Unsafe returns an error if locks must not be kept on this server. In a Cluster it accepts
// replicas, because the client asks them only for the list of slots. The parameter served says
// whether a master has answered at addr before. If served is true, or with Sentinels, a replica at
// addr means that a failover is under way. Otherwise a replica means that the address is wrong.
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

// Evicts returns an error if the server's settings let it delete the key of a held lock. Such a
// server must not grant locks. But leases that it has granted can be renewed until it deletes their
// keys.
func (s Server) Evicts(addr string) error {
	if s.policy == "" || s.policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("%w: %w: %s has maxmemory-policy %s, which may delete a lock that is held; set it to noeviction (in a managed service by a parameter group of your own)",
		driver.ErrDenied, driver.ErrNotSent, addr, s.policy)
}

// ReadAgain asks the server s again for what may change while connections stay open: its maxmemory
// policy, and whether it is a master. It reads INFO, because managed servers hide CONFIG.
func (s Server) ReadAgain(ctx context.Context, c processor) (Server, error) {
	args := []any{"info"}
	if s.major >= 7 { // an older server takes at most one section name
		args = append(args, "memory", "replication")
	}
	info := goredis.NewStringCmd(ctx, args...)
	if err := c.Process(ctx, info); err != nil {
		return Server{}, Explain(err)
	}
	return parseServer(info.Val(), nil), nil
}

// Judge records whether a server may grant locks. The parameter server is a client of that server,
// or a connection to it. If verdict is nil, the server may grant locks. If verdict wraps
// driver.ErrDenied, the server must not grant locks. Any other verdict changes nothing. While at
// least one server must not grant locks, all acquires are refused.
func (n *Node) Judge(server fmt.Stringer, verdict error) {
	n.judging.Lock()
	defer n.judging.Unlock()
	switch {
	case verdict == nil:
		delete(n.verdicts, server.String())
	case errors.Is(verdict, driver.ErrDenied):
		n.verdicts[server.String()] = verdict
	}
	n.refuseAsJudged()
}

// refuseAsJudged applies the verdicts. The caller must hold judging.
func (n *Node) refuseAsJudged() {
	servers := slices.Sorted(maps.Keys(n.verdicts))
	if len(servers) == 0 {
		n.Refuse(nil)
		return
	}
	n.Refuse(n.verdicts[servers[0]]) // one error is enough: each names the whole store
}

// LookAgain reads the settings of all masters. While a master may delete the key of a held lock,
// acquires are refused. LookAgain gives up the connections to a server that is no longer a master.
// If a master does not answer, its last answer counts as long as it is a master.
//
// Note: do not ignore the last answer of an unreachable master. When a frozen master resumes, it
// executes the requests that were sent to it while it was frozen.
func (n *Node) LookAgain(ctx context.Context, known Server, addr string) {
	n.looking.Lock()
	defer n.looking.Unlock()
	var mu sync.Mutex
	masters := map[string]bool{}
	err := n.eachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		mu.Lock()
		masters[c.String()] = true
		mu.Unlock()
		sent := time.Now()
		s, err := known.ReadAgain(ctx, c)
		if n.opts.Links != nil && (s.Replica() || Astray(err)) {
			n.opts.Links.Leave(sent)
			return nil
		}
		if err == nil {
			err = s.Evicts(addr)
		}
		n.Judge(c, err)
		return nil
	})
	if err != nil {
		return
	}
	n.judging.Lock()
	defer n.judging.Unlock()
	maps.DeleteFunc(n.verdicts, func(server string, _ error) bool { return !masters[server] })
	n.refuseAsJudged()
}
