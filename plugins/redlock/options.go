package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Connect has the settings of every connection to a node.
type Connect = config.Connect

// Options are the settings of the backend. A zero field means its default. The
// tag of a field names its configuration key.
type Options struct {
	// Address lists the nodes: 3, 5, 7 or 9 independent masters, each as
	// host:port, redis://user:password@host:port/db or rediss://. Every host
	// must list the same servers; their order does not matter.
	Address []string `key:"address" required:"true" doc:"the nodes: 3, 5, 7 or 9 independent masters, each host:port, redis:// or rediss://"`
	Connect
	// PoolSize is the number of connections to each node for requests, 1 to 1000. All votes of a node
	// go over one of these connections, one batch after the other, so more connections do not make
	// grants faster. Wake-ups have their own connection.
	PoolSize int `key:"pool_size" default:"2" doc:"connections that carry requests, 1 to 1000"`
	// DB is the number of the database on every node.
	DB int `key:"db" default:"0" doc:"number of the database on every node"`
	// Prefix goes before every key and channel. It must not contain braces. It must not be "~", "~r"
	// or a longer beginning of the backend's own key "~redlock".
	Prefix string `key:"prefix" doc:"what goes before every key and channel, such as \"lock:\""`

	// NodeTimeout is the longest time that a node may take to answer. A node that takes longer is left
	// out of all requests until it answers again. A TTL must be at least 20 times NodeTimeout.
	NodeTimeout time.Duration `key:"node_timeout" default:"50ms" doc:"how long a node may take to vote; a TTL must be at least 20 times as long"`
	// MaxTTL is the longest TTL of a lease. A node that has lost its data does not vote for this time.
	// MaxTTL must be from 20 times NodeTimeout to 24 hours, and the same on every host.
	MaxTTL time.Duration `key:"max_ttl" default:"60s" doc:"bound of every TTL, and how long a node that lost its data does not vote; the same on every host"`
	// Quarantine is "on", or "off" for tests. If "off", a node that has lost its data votes at once.
	Quarantine string `key:"quarantine" default:"on" doc:"on; off lets a restarted node vote at once, and so grant a lock twice (for tests)"`

	// Logger receives messages for operators; nil means slog.Default().
	Logger *slog.Logger
}

// The shortest TTL allowed is leastTTL * NodeTimeout. A grant may take two requests to the nodes,
// and enough of the TTL must be left after them.
const leastTTL = 20

func (o Options) ttlMin() time.Duration { return leastTTL * o.NodeTimeout }

// resolve checks the options without asking a server, and returns the nodes' addresses.
func (o Options) resolve() ([]redisnode.Address, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var nodes []redisnode.Address
	for i, text := range o.Address {
		a, err := redisnode.ParseAddress(text, 6379)
		if err != nil {
			return nil, fmt.Errorf("node %d of %d: %w", i+1, len(o.Address), err)
		}
		for _, other := range nodes {
			if a.Network == other.Network && a.Addr == other.Addr {
				return nil, fmt.Errorf("%w: address: %s is listed twice, and would vote twice", driver.ErrConfig, a.Addr)
			}
		}
		nodes = append(nodes, a)
	}
	return nodes, nil
}

func (o Options) check() error {
	var err error
	say := func(bad bool, format string, args ...any) {
		if bad {
			err = errors.Join(err, fmt.Errorf("%w: "+format, append([]any{driver.ErrConfig}, args...)...))
		}
	}
	n := len(o.Address)
	say(n < 3 || n > 9, "address lists %d nodes; 3 to 9 are needed", n)
	say(n >= 3 && n <= 9 && n%2 == 0, "address lists %d nodes; an even number survives no more losses than %d would", n, n-1)
	say(o.Prefix != "" && strings.HasPrefix(markerKey, o.Prefix), "prefix %q is reserved, because the key %s begins with it", o.Prefix, markerKey)
	say(o.DB < 0, "db is %d, less than 0", o.DB)
	say(o.NodeTimeout < time.Millisecond, "node_timeout is %v, less than 1ms", o.NodeTimeout)
	say(o.MaxTTL < o.ttlMin(), "max_ttl %v is less than %d times node_timeout %v", o.MaxTTL, leastTTL, o.NodeTimeout)
	say(o.MaxTTL > 24*time.Hour, "max_ttl %v is more than 24h", o.MaxTTL)
	say(o.Quarantine != "on" && o.Quarantine != "off", "quarantine is neither on nor off")
	return err
}

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name:       "redlock",
	Doc:        "locks on a majority of 3 to 9 independent Redis or Valkey masters",
	Keys:       config.KeysOf(Options{}),
	Properties: Options{}.properties(),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		return open(optionsOf(cfg, log))
	},
	Commands: []driver.Command{{
		Name: "init",
		Doc:  "lets the nodes of a fresh cluster vote at once, instead of after max_ttl",
		Run:  initNodes,
	}},
}

func optionsOf(cfg driver.Config, log *slog.Logger) Options {
	o := Options{Logger: log}
	config.Decode(cfg, &o)
	return o
}

// properties returns what a backend with these options promises. It does not promise FIFO, because
// an owner may get a majority without the node that has the queue.
func (o Options) properties() driver.Properties {
	config.Fill(&o)
	return driver.Properties{
		Name:           "redlock",
		Fencing:        driver.FencingQuorum,
		Scope:          driver.ScopeShared,
		TTLMin:         o.ttlMin(),
		TTLStep:        time.Millisecond,
		TTLMax:         o.MaxTTL,
		TimedTokens:    true,
		Durability:     "unknown",
		SurvivesPlugin: true,
		Capabilities: []driver.Capability{
			driver.CapWaiter, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin,
		},
	}
}
