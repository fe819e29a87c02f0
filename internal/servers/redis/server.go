package redis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
)

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
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
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
			argv := append(append([]string(nil), o.Wrap...), binary, conf)
			return append(argv, o.Args...), os.WriteFile(conf, o.conf(dir, port), 0o600)
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
func Program() servers.Program {
	path, err := program.Find()
	return servers.Program{Name: program.Name, Path: path, Err: err}
}

// StartNodes starts count servers at the same time, each as [Start] does, and returns
// when all servers answer. If a server fails, the other servers are closed.
func StartNodes(ctx context.Context, count int, opts *Options) (servers.Nodes, error) {
	return servers.StartNodes(count, func(int) (*servers.Server, error) { return Start(ctx, opts) })
}
