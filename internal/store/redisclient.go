package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/inject"
)

// DialRedis makes a client with the defaults of go-redis from the configuration of
// a backend.
func DialRedis(cfg driver.Config) (redis.UniversalClient, error) {
	logging.Disable() // what the pool writes to stderr comes back as an error too
	addrs := cfg.List("address")
	if len(addrs) == 1 && strings.Contains(addrs[0], "://") {
		o, err := redis.ParseURL(addrs[0])
		if err != nil {
			return nil, fmt.Errorf("store: the address is no Redis URL that go-redis reads")
		}
		if cfg["username"] != "" {
			o.Username = cfg["username"]
		}
		if cfg["password"] != "" {
			o.Password = cfg["password"]
		}
		return redis.NewClient(o), nil
	}
	o := &redis.UniversalOptions{
		Addrs: addrs, Username: cfg["username"], Password: cfg["password"], IsClusterMode: cfg.Bool("cluster"),
		MasterName: cfg["sentinel_master"], SentinelUsername: cfg["sentinel_username"], SentinelPassword: cfg["sentinel_password"],
	}
	if cfg.Bool("tls_enabled") {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return redis.NewUniversalClient(o), nil
}

// RedisNodes are clients of servers that do not know each other.
type RedisNodes []redis.UniversalClient

// DialRedisNodes is [DialRedis] for each of the addresses.
func DialRedisNodes(cfg driver.Config) (RedisNodes, error) {
	var nodes RedisNodes
	for _, addr := range cfg.List("address") {
		one := driver.Config{"address": addr, "username": cfg["username"], "password": cfg["password"], "tls_enabled": cfg["tls_enabled"]}
		c, err := DialRedis(one)
		if err != nil {
			return nil, errors.Join(err, nodes.Close())
		}
		nodes = append(nodes, c)
	}
	return nodes, nil
}

// Close closes all of them.
func (n RedisNodes) Close() error { return inject.Each(n, redis.UniversalClient.Close) }

// ping is the floor of everything that asks a Redis server: one PING through a
// pooled client.
func ping(cfg driver.Config) (call func(context.Context) error, end func() error, err error) {
	c, err := DialRedis(cfg)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return c.Ping(ctx).Err() }, c.Close, nil
}

func countRedis(cfg driver.Config) (*Counter, error) {
	nodes, err := DialRedisNodes(cfg)
	if err != nil {
		return nil, err
	}
	c := &Counter{own: 2, close: nodes.Close}
	for _, node := range nodes {
		c.nodes = append(c.nodes, func(ctx context.Context) (Served, error) {
			stats, err := node.InfoMap(ctx, "stats").Result()
			if err != nil {
				return Served{}, err
			}
			n, err := strconv.ParseFloat(stats["Stats"]["total_commands_processed"], 64)
			if err != nil {
				return Served{}, fmt.Errorf("store: the server does not report total_commands_processed: %w", err)
			}
			commands, err := node.InfoMap(ctx, "commandstats").Result()
			calls, microseconds := fromClients(commands["Commandstats"])
			return Served{n, calls, 1000 * microseconds}, err
		})
	}
	return c, nil
}

// neverScripted are commands that no script of ours runs; but for PING, none can.
var neverScripted = []string{"evalsha", "eval", "script|load", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "wait", "ping"}

// fromClients adds up the calls of those commands in the section commandstats,
// and what they took with all that they have run. What has not been called yet is
// not in it.
func fromClients(commands map[string]string) (calls, microseconds float64) {
	for _, name := range neverScripted {
		var n, took float64
		if _, err := fmt.Sscanf(commands["cmdstat_"+name], "calls=%f,usec=%f,", &n, &took); err == nil {
			calls, microseconds = calls+n, microseconds+took
		}
	}
	return calls, microseconds
}

// housekeeping are the side keys of which a prefix has one each, however many
// locks it has seen: its control string and the owners that were withdrawn, who
// are forgotten within two minutes.
var housekeeping = []string{"~s:{}", "~b:{}"}

// controlSize bounds the control string. A longer one would have something for
// each lock.
const controlSize = 128

// leftKeys lists the keys of a prefix but for its housekeeping.
func leftKeys(ctx context.Context, addr, prefix string) ([]string, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var left []string
	it := c.Scan(ctx, 0, "", 1000).Iterator()
	for it.Next(ctx) {
		key, ours := strings.CutPrefix(it.Val(), prefix)
		if ours && !slices.Contains(housekeeping, key) {
			left = append(left, it.Val())
		}
	}
	size, err := c.StrLen(ctx, prefix+housekeeping[0]).Result()
	if err = errors.Join(it.Err(), err); err != nil {
		return nil, err
	}
	if size > controlSize {
		left = append(left, prefix+housekeeping[0])
	}
	slices.Sort(left)
	return slices.Compact(left), nil
}

// openThings keeps a thing in one key and its token in another.
func openThings(addr string) (*Guarded, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	return &Guarded{
		Write: func(ctx context.Context, thing string, token uint64) error {
			wrote, err := c.Eval(ctx, fence.RedisSet, []string{thing, thing + ":token"}, token, token).Int()
			if err == nil && wrote == 0 {
				err = &fence.StaleError{Name: thing, Token: token}
			}
			return err
		},
		WriteBare: func(ctx context.Context, thing string, token uint64) error { return c.Set(ctx, thing, token, 0).Err() },
		Close:     c.Close,
	}, nil
}
