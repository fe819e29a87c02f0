package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// poolConns limits the connections of a client to a server. The limit is high, so that each caller
// of a benchmark has a connection.
const poolConns = 300

// Dial makes a client of the servers that a backend's configuration names.
func Dial(cfg driver.Config) (goredis.UniversalClient, error) {
	logging.Disable() // errors are also returned, so go-redis need not print them
	addrs := cfg.List("address")
	if len(addrs) == 1 && strings.Contains(addrs[0], "://") {
		o, err := goredis.ParseURL(addrs[0])
		if err != nil {
			return nil, fmt.Errorf("redis: the address is no Redis URL that go-redis reads")
		}
		o.Username, o.Password, o.PoolSize = cmp.Or(cfg["username"], o.Username), cmp.Or(cfg["password"], o.Password), poolConns
		return goredis.NewClient(o), nil
	}
	o := &goredis.UniversalOptions{
		Addrs: addrs, Username: cfg["username"], Password: cfg["password"], IsClusterMode: cfg.Bool("cluster"), PoolSize: poolConns,
		MasterName: cfg["sentinel_master"], SentinelUsername: cfg["sentinel_username"], SentinelPassword: cfg["sentinel_password"],
	}
	if cfg.Bool("tls_enabled") {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return goredis.NewUniversalClient(o), nil
}

// client returns a client of the server at addr that logs in
// as the default user, without a password.
func client(addr string) *goredis.Client { return goredis.NewClient(&goredis.Options{Addr: addr}) }

func Do(ctx context.Context, addr string, args ...any) error {
	c := client(addr)
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("redis: %v on %s: %w", args, addr, err)
	}
	return nil
}

// Clients has one client for each of several independent servers.
type Clients []goredis.UniversalClient

func DialNodes(cfg driver.Config) (Clients, error) {
	var nodes Clients
	for _, addr := range cfg.List("address") {
		one := driver.Config{"address": addr, "username": cfg["username"], "password": cfg["password"], "tls_enabled": cfg["tls_enabled"]}
		c, err := Dial(one)
		if err != nil {
			return nil, errors.Join(err, nodes.Close())
		}
		nodes = append(nodes, c)
	}
	return nodes, nil
}

func (n Clients) Close() error { return inject.Each(n, goredis.UniversalClient.Close) }

// ping returns a function that sends a PING, the cheapest request to a Redis server.
func ping(cfg driver.Config) (call func(context.Context) error, end func() error, err error) {
	c, err := Dial(cfg)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return c.Ping(ctx).Err() }, c.Close, nil
}

// Count returns a counter of the commands that each server has executed.
func Count(cfg driver.Config) (*servers.Counter, error) {
	nodes, err := DialNodes(cfg)
	if err != nil {
		return nil, err
	}
	c := &servers.Counter{Own: 2, End: nodes.Close}
	for _, node := range nodes {
		c.Nodes = append(c.Nodes, func(ctx context.Context) (servers.Served, error) {
			stats, err := node.InfoMap(ctx, "stats").Result()
			if err != nil {
				return servers.Served{}, err
			}
			n, err := strconv.ParseFloat(stats["Stats"]["total_commands_processed"], 64)
			if err != nil {
				return servers.Served{}, fmt.Errorf("redis: the server does not report total_commands_processed: %w", err)
			}
			commands, err := node.InfoMap(ctx, "commandstats").Result()
			calls, microseconds := fromClients(commands["Commandstats"])
			return servers.Served{Run: n, Sent: calls, Busy: 1000 * microseconds}, err
		})
	}
	return c, nil
}

// neverScripted are commands that no script of lockbench runs, so only clients send them.
var neverScripted = []string{"evalsha", "eval", "script|load", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "wait", "ping"}

// fromClients returns the number of times that clients called the commands in neverScripted, and
// the time that the server worked on these calls. The time includes the commands that scripts ran.
// The map commands is INFO's commandstats section, which omits commands that were never called.
func fromClients(commands map[string]string) (calls, microseconds float64) {
	for _, name := range neverScripted {
		var n, took float64
		if _, err := fmt.Sscanf(commands["cmdstat_"+name], "calls=%f,usec=%f,", &n, &took); err == nil {
			calls, microseconds = calls+n, microseconds+took
		}
	}
	return calls, microseconds
}

// These keys exist once for each prefix on a server. controlKey has a few numbers, such as the last
// token. withdrawnKey has the withdrawn owners, which the backend forgets within two minutes.
// Longer keys that begin with controlKey belong to processes that wait for locks, and expire.
const controlKey, withdrawnKey = "~s:{}", "~b:{}"

// controlSize limits the length of controlKey's value, which must not grow with the locks.
const controlSize = 128

// LeftKeys lists the keys that begin with prefix, except withdrawnKey and the keys that begin with
// controlKey. It lists controlKey itself if its value is longer than controlSize.
func LeftKeys(ctx context.Context, addr, prefix string) ([]string, error) {
	c := client(addr)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	keys, err := scan(ctx, c, glob.Replace(prefix)+"*")
	if err != nil {
		return nil, err
	}
	size, err := c.StrLen(ctx, prefix+controlKey).Result()
	left := slices.DeleteFunc(keys, func(key string) bool {
		process, side := strings.CutPrefix(key, prefix+controlKey)
		return key == prefix+withdrawnKey || side && (process != "" || size <= controlSize)
	})
	slices.Sort(left)
	return slices.Compact(left), err
}

func remove(ctx context.Context, cfg driver.Config, prefix string) error {
	c, err := Dial(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	if cluster, ok := c.(*goredis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error { return removeFrom(ctx, c, prefix) })
	}
	return removeFrom(ctx, c, prefix)
}

// RemoveFromEach deletes all keys that begin with prefix from several independent servers.
func RemoveFromEach(ctx context.Context, cfg driver.Config, prefix string) error {
	nodes, err := DialNodes(cfg)
	if err != nil {
		return err
	}
	return errors.Join(inject.Each(nodes, func(c goredis.UniversalClient) error { return removeFrom(ctx, c, prefix) }), nodes.Close())
}

// glob escapes the special characters in a prefix, so that SCAN matches the prefix literally.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func removeFrom(ctx context.Context, c goredis.Cmdable, prefix string) error {
	keys, err := scan(ctx, c, glob.Replace(prefix)+"*")
	return errors.Join(err, inject.Each(keys, func(key string) error { return c.Unlink(ctx, key).Err() }))
}

func scan(ctx context.Context, c goredis.Cmdable, pattern string) (keys []string, err error) {
	found := c.Scan(ctx, 0, pattern, 1000).Iterator()
	for found.Next(ctx) {
		keys = append(keys, found.Val())
	}
	return keys, found.Err()
}

// Foreign returns a hint for operators: how to delete the key of a lock that another program holds.
// The key is prefix+name. Our backends encode some names in keys, but other programs do not.
func Foreign(prefix, name string) string {
	return fmt.Sprintf("its key %q holds no lease of ours; if nothing else needs it: redis-cli DEL '%s'",
		prefix+name, strings.ReplaceAll(prefix+name, "'", `'\''`))
}
