package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Connect has the settings of every connection to a server.
type Connect = config.Connect

// Options are the settings of the backend. A zero field means its default. The
// tag of a field names its configuration key.
type Options struct {
	// Address is the server: host:port, redis://user:password@host:port/db,
	// rediss:// for TLS, or unix:///path?db=1. If Cluster is set, Address lists some
	// nodes of the Redis Cluster. If SentinelMaster is set, Address lists the sentinels.
	Address []string `key:"address" default:"localhost:6379" doc:"host:port, redis://, rediss:// or unix://; a list with cluster or sentinel_master"`
	Connect
	// PoolSize is the number of connections for requests, 1 to 1000. Each connection carries one batch
	// of requests at a time. With few connections, batches are larger and cost the server less. More
	// connections help only if the server is far away. Wake-ups have their own connection.
	PoolSize int `key:"pool_size" default:"2" doc:"connections that carry requests, 1 to 1000"`
	// DB is the number of the database. It must be 0 in a Cluster, except on Valkey 9 and later, where
	// the server's setting cluster-databases is the number of databases.
	DB int `key:"db" default:"0" doc:"number of the database"`
	// Prefix goes before every key and channel, and must not contain braces.
	// Backends with different prefixes do not see each other's locks. Without a
	// prefix the lock "x" is the key "x", and every key of the database counts
	// as a lock.
	Prefix string `key:"prefix" doc:"what goes before every key and channel, such as \"lock:\""`

	// SentinelMaster is the name of the master that the sentinels at Address
	// watch. The backend logs in to the sentinels as SentinelUsername, with SentinelPassword or the
	// password in SentinelPasswordFile.
	SentinelMaster       string `key:"sentinel_master" doc:"name of the master that the sentinels at address watch"`
	SentinelUsername     string `key:"sentinel_username" doc:"ACL user of the sentinels"`
	SentinelPassword     string `key:"sentinel_password" secret:"true" doc:"password of the sentinels"`
	SentinelPasswordFile string `key:"sentinel_password_file" doc:"file with the password of the sentinels, read again for each connection"`
	// SentinelTLSEnabled says whether connections to the sentinels use TLS. If it is nil, they use TLS
	// if connections to the servers use TLS. The other TLS fields apply to both kinds of connections.
	SentinelTLSEnabled *bool `key:"sentinel_tls_enabled" doc:"connect to the sentinels with TLS, by the tls keys, or without; as to the servers when not set"`
	// Cluster says that Address names nodes of a Redis Cluster.
	Cluster bool `key:"cluster" default:"false" doc:"address names nodes of a Redis Cluster"`

	// WaitReplicas is the number of replicas that must confirm a grant, renewal or release, by the
	// command WAIT and within WaitTimeout. If fewer replicas confirm it, the request fails.
	// WaitReplicas makes the loss of a lock at a failover less likely, but not impossible.
	WaitReplicas int           `key:"wait_replicas" default:"0" doc:"replicas that must confirm a grant, a renewal or a release"`
	WaitTimeout  time.Duration `key:"wait_timeout" default:"200ms" doc:"how long to wait for them"`

	// LookEvery is the interval, 100 ms to 1 h, at which a host reads the server's maxmemory-policy
	// and role, even without requests. The host may notice a change only at the next read. It pings a
	// silent connection for wake-ups every 2 s, or at intervals of twice LookEvery if they are longer.
	LookEvery time.Duration `key:"look_every" default:"1s" doc:"how often the server is asked for its maxmemory-policy and role; wake-ups are pinged half as often; 100ms to 1h"`

	// Logger receives messages for operators; nil means slog.Default().
	Logger *slog.Logger
}

// target is the store that valid Options describe.
type target struct {
	opts     Options
	network  string
	addrs    []string
	tls      bool
	topology redisnode.Topology
}

// resolve checks the options without asking a server, and returns a target
// whose options include the settings of the URLs in Address.
func (o Options) resolve() (target, error) {
	if err := o.check(); err != nil {
		return target{}, err
	}
	if o.WaitReplicas > 0 {
		o.RequestTimeout += o.WaitTimeout // WAIT may answer that late
	}
	t, port := target{opts: o}, 6379
	switch {
	case o.Cluster:
		t.topology = redisnode.Cluster
	case o.SentinelMaster != "":
		t.topology, port = redisnode.Sentinels, 26379
	}
	for _, text := range o.Address {
		a, err := redisnode.ParseAddress(text, port)
		if err != nil {
			return target{}, err
		}
		if err := t.add(a); err != nil {
			return target{}, err
		}
	}
	if len(t.addrs) > 1 && t.topology == redisnode.Alone {
		return target{}, fmt.Errorf("%w: address: %d addresses need cluster or sentinel_master", driver.ErrConfig, len(t.addrs))
	}
	return t, nil
}

func (o Options) check() error {
	var err error
	say := func(bad bool, format string, args ...any) {
		if bad {
			err = errors.Join(err, fmt.Errorf("%w: "+format, append([]any{driver.ErrConfig}, args...)...))
		}
	}
	say(o.Cluster && o.SentinelMaster != "", "cluster and sentinel_master: a Cluster has no sentinels")
	say(o.Cluster && o.WaitReplicas != 0, "cluster and wait_replicas: WAIT cannot be sent to the node of a key")
	say(o.DB < 0, "db is %d, less than 0", o.DB)
	say(o.WaitReplicas < 0, "wait_replicas is %d, less than 0", o.WaitReplicas)
	say(o.WaitTimeout <= 0, "wait_timeout is %v, which is not positive", o.WaitTimeout)
	say(o.SentinelMaster == "" && o.SentinelUsername+o.SentinelPassword+o.SentinelPasswordFile != "",
		"sentinel_username, sentinel_password and sentinel_password_file mean nothing without sentinel_master")
	say(o.SentinelMaster == "" && o.SentinelTLSEnabled != nil, "sentinel_tls_enabled means nothing without sentinel_master")
	err = errors.Join(err, config.Between("look_every", o.LookEvery, 100*time.Millisecond, time.Hour))
	say(o.SentinelPassword != "" && o.SentinelPasswordFile != "", "sentinel_password and sentinel_password_file: one of them is enough")
	return err
}

// add adds an address to t. It refuses a URL that contradicts configuration keys.
func (t *target) add(a redisnode.Address) error {
	o := &t.opts
	switch {
	case a.Network == "unix" && t.topology != redisnode.Alone:
		return fmt.Errorf("%w: address: a unix socket is no node of a Cluster and no sentinel", driver.ErrConfig)
	case a.Network == "unix" && len(o.Address) > 1:
		return fmt.Errorf("%w: address: a unix socket stands alone", driver.ErrConfig)
	case a.DB > 0 && o.DB != 0 && a.DB != o.DB:
		return fmt.Errorf("%w: db: the URL in address has another", driver.ErrConfig)
	}
	if err := redisnode.Take(&o.Connect, a); err != nil {
		return err
	}
	if a.DB > 0 {
		o.DB = a.DB
	}
	if a.TLS && o.SentinelTLSEnabled != nil && !*o.SentinelTLSEnabled {
		return config.Conflict("the former says no TLS, and the latter asks for it", "sentinel_tls_enabled=false", "address")
	}
	t.tls = t.tls || a.TLS
	t.network = a.Network
	t.addrs = append(t.addrs, a.Addr)
	return nil
}

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name:       "redis",
	Doc:        "locks on one Redis or Valkey master, alone, behind Sentinel, or in a Cluster",
	Keys:       config.KeysOf(Options{}),
	Properties: properties("unknown", ""),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o := Options{Logger: log}
		config.Decode(cfg, &o)
		return open(o)
	},
}

func properties(durability, server string) driver.Properties {
	return driver.Properties{
		Name:           "redis",
		Fencing:        driver.FencingDurable,
		Scope:          driver.ScopeShared,
		TTLMin:         10 * time.Millisecond, // for tests, because it needs a renewal every few milliseconds
		TTLStep:        time.Millisecond,
		TTLMax:         24 * time.Hour,
		FIFO:           true,
		FirstSpan:      kit.FirstSpan,
		TimedTokens:    true,
		Durability:     durability,
		Server:         server,
		SurvivesPlugin: true,
		Capabilities: []driver.Capability{
			driver.CapWaiter, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin, driver.CapStarter,
		},
	}
}
