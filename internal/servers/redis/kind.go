// Package redis starts Redis servers: alone, with replicas, as a
// Cluster or with Sentinel. It changes or breaks them as operators do.
package redis

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
)

// Cluster is the setting of a Redis Cluster. Its nodes have no proxies in front of them.
const Cluster = "cluster"

// Push is the text that begins every message that a server sends to a subscriber.
const Push = "3\r\n$7\r\nmessage\r\n"

// Kind is one Redis server, with or without a replica, or a Cluster.
var Kind = &servers.Kind{
	Name:     "redis",
	Lacks:    servers.Lacking(nil, "one server has no minority", servers.CapMinority, servers.CapLeader, servers.CapVotes),
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}, {Name: servers.WithReplica, Servers: 1}, {Name: Cluster, Servers: clusterNodes, Sharded: true}},
	Synced:   []string{"appendfsync always"},
	Forgets:  true,
	Push:     Push,
	Floor:    &servers.Floor{Name: "redis-ping", Open: ping},
	LeftKeys: LeftKeys,

	Prepare:    prepare,
	Operations: append(Operations(func(*servers.Operation) {}), onGroups...),
	Staged:     append(Evictions, staged...),
	Launch: func(ctx context.Context, durable bool) (servers.Nodes, error) {
		if durable {
			return StartNodes(ctx, 1, &Options{AppendFsync: FsyncAlways})
		}
		return StartNodes(ctx, 1, nil)
	},
	Services: []string{"redis"},
	HostIn:   regexp.MustCompile(`^redis://(?:.*@)?([^/?]+)`),
	Counter:  Count,
	Remove:   remove,
	Foreign:  Foreign,
	Program:  Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	switch {
	case w.Wants(servers.CapSentinel):
		return startSentinel(ctx, e)
	case w.Setting == Cluster:
		return Prepare(ctx, e, w, startCluster)
	case w.Setting == servers.WithReplica:
		return Prepare(ctx, e, w, StartServer, startReplica)
	}
	return Prepare(ctx, e, w, StartServer)
}

// StartStep is one step of [Prepare]. It starts servers of an environment, or prepares them.
type StartStep func(ctx context.Context, e *servers.Environment, w servers.Requirements) error

// Prepare chooses the hosts' account. It then runs the given steps, which start Redis servers, and
// sets e.Product for these servers.
func Prepare(ctx context.Context, e *servers.Environment, w servers.Requirements, steps ...StartStep) error {
	if err := e.Account(ctx, w); err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(ctx, e, w); err != nil {
			return err
		}
	}
	s, err := newStore(ctx, e)
	if err != nil {
		return err
	}
	e.Product = s
	return nil
}

// hostLines are in the configuration of the servers that the steps of [Prepare] start. They
// make a server send its data to a new replica without a delay, and give hosts an account.
var hostLines = []string{"repl-diskless-sync-delay 0", "user " + servers.HostUser + " on >" + servers.HostPassword + " ~* &* +@all"}

func StartServer(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	wrap, err := e.StartClock(ctx, w)
	if err != nil {
		return err
	}
	o := &Options{Wrap: wrap, Lines: hostLines}
	if w.Wants(servers.CapKeeps) {
		o.AppendFsync = FsyncAlways
	}
	server, err := Start(ctx, o)
	if err == nil {
		e.Servers = append(e.Servers, server)
	}
	return err
}

// Fsync says how often a Redis server flushes its append-only file to disk.
type Fsync string

// These are the values of Fsync. With FsyncNone the server has no append-only file.
const (
	FsyncNone     Fsync = ""
	FsyncEverySec Fsync = "everysec"
	FsyncAlways   Fsync = "always"
)

// Options describe a Redis server. The zero value is a server that keeps
// its data in memory only and asks for no password.
type Options struct {
	// AppendFsync decides which writes survive a crash. Default FsyncNone.
	AppendFsync Fsync
	// Password is the password of the default user. Default none.
	Password string
	// Lines are added to redis.conf after this package's lines, which they override.
	Lines []string
	// Args are further arguments of redis-server, such as "--sentinel".
	Args []string
	// Wrap is a command to put in front of the server's command, such as "env"
	// with variables. It must run the server's command by exec. Default none.
	Wrap []string

	ports *ports.Taken // see [servers.Recipe]
}

// Start starts a Redis server, and returns when it answers. A nil opts means the
// zero value. The program is redis-server, or the one that the environment
// variable LOCKBENCH_REDIS_SERVER names. The error wraps [servers.ErrNotInstalled]
// if the variable is not set and there is no redis-server on the PATH.
func Start(ctx context.Context, opts *Options) (*servers.Server, error) {
	o := *cmp.Or(opts, &Options{})
	binary, err := program.Find()
	if err != nil {
		return nil, err
	}
	return servers.Launch(ctx, servers.Recipe{
		Product: "redis",
		Ports:   o.ports,
		Keeps:   o.AppendFsync != FsyncNone,
		Prepare: func(dir string, port int, _ bool) ([]string, error) {
			// Other users can read a command line, so a password must stand in a file.
			conf := filepath.Join(dir, "redis.conf")
			return slices.Concat(o.Wrap, []string{binary, conf}, o.Args), os.WriteFile(conf, o.conf(dir, port), 0o600)
		},
		Ready: answers,
		Data:  []string{"appendonlydir", "dump.rdb"},
	})
}

// program is the program to look for: Redis, or another server with Redis's protocol.
var program = servers.Wanted{Name: "redis-server", Debian: "redis-server", Homebrew: "redis", Variable: "LOCKBENCH_REDIS_SERVER"}

func (o Options) conf(dir string, port int) []byte {
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", port),
		fmt.Sprintf("dir %q", dir),
		"daemonize no",
		`save ""`,
		"tcp-backlog 1024",
	}
	if o.AppendFsync != FsyncNone {
		lines = append(lines, "appendonly yes", "appendfsync "+string(o.AppendFsync))
	}
	if o.Password != "" {
		lines = append(lines, fmt.Sprintf("requirepass %q", o.Password))
	}
	return []byte(strings.Join(append(lines, o.Lines...), "\n") + "\n")
}

// answers reports whether a server serves requests. A server that refuses PING because the client
// has no password is ready. A server that still loads its data is not ready.
var answers = servers.Answers("PING\r\n", func(reply string) bool {
	return strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH")
})

// Program returns the path of the program that [Start] runs, or why it was not found.
func Program() servers.Program { return program.Program() }

// StartNodes starts count servers at the same time, each as [Start] does, and returns
// when all servers answer. If a server fails, the other servers are closed.
func StartNodes(ctx context.Context, count int, opts *Options) (servers.Nodes, error) {
	return servers.StartNodes(count, func(int) (*servers.Server, error) { return Start(ctx, opts) })
}
