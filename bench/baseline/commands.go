package baseline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

// Counter reads how many commands the servers of a backend have been given, by
// their own counters. It is used by one goroutine.
type Counter struct {
	nodes float64
	own   float64 // what one reading adds to each node
	reads float64
	total func(ctx context.Context) (run, sent float64, err error) // over all nodes
	close func() error
}

// Read returns the mean number for a node, since some time in the past, without
// those of the counter itself. Of what was run, sent are those that clients have
// asked for themselves: for Redis, if they send only scripts, subscriptions and
// pings, as the plugins do.
func (c *Counter) Read(ctx context.Context) (run, sent float64, err error) {
	run, sent, err = c.total(ctx)
	c.reads++
	return run/c.nodes - c.own*c.reads, sent / c.nodes, err
}

// Close ends its connections.
func (c *Counter) Close() error { return c.close() }

// NewCounter connects to the servers of a backend. It returns nil for one that
// has none, or none that count.
//
// Redis counts commands, those that scripts run among them
// (total_commands_processed of INFO); MySQL and MariaDB count statements
// (Questions); etcd counts messages that it received, requests as well as those
// in streams (grpc_server_msg_received_total of its metrics).
func NewCounter(backend string, cfg driver.Config) (*Counter, error) {
	switch backend {
	case "redis", "redlock":
		return countRedis(cfg)
	case "mysql":
		return countMySQL(cfg)
	case "etcd":
		return countEtcd(cfg)
	}
	return nil, nil
}

func countRedis(cfg driver.Config) (*Counter, error) {
	var nodes []goredis.UniversalClient
	for _, addr := range cfg.List("address") {
		one := driver.Config{"address": addr, "username": cfg["username"], "password": cfg["password"], "tls_enabled": cfg["tls_enabled"]}
		c, err := dialRedis(one)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, c)
	}
	c := &Counter{nodes: float64(len(nodes)), own: 2}
	c.total = func(ctx context.Context) (run, sent float64, err error) {
		for _, node := range nodes {
			text, err := node.Info(ctx, "stats").Result()
			if err != nil {
				return 0, 0, err
			}
			n, err := field(text, "total_commands_processed:")
			if err != nil {
				return 0, 0, err
			}
			run += n
			if text, err = node.Info(ctx, "commandstats").Result(); err != nil {
				return 0, 0, err
			}
			sent += fromClients(text)
		}
		return run, sent, nil
	}
	c.close = func() error {
		var errs []error
		for _, node := range nodes {
			errs = append(errs, node.Close())
		}
		return errors.Join(errs...)
	}
	return c, nil
}

// neverScripted are commands that no script of ours runs; but for PING, none can.
var neverScripted = []string{"evalsha", "eval", "script|load", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "wait", "ping"}

// fromClients adds up the calls of those commands in the section commandstats.
// What has not been called yet is not in it.
func fromClients(text string) (sum float64) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.ParseFloat(calls, 64); err == nil && slices.Contains(neverScripted, name) {
			sum += n
		}
	}
	return sum
}

// field finds the number after a key at the start of a line.
func field(text, key string) (float64, error) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, key); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("baseline: the server does not tell %s", strings.TrimSuffix(key, ":"))
}

func countMySQL(cfg driver.Config) (*Counter, error) {
	db, err := dialMySQL(cfg)
	if err != nil {
		return nil, err
	}
	c := &Counter{nodes: 1, own: 1, close: db.Close}
	c.total = func(ctx context.Context) (n, sent float64, err error) {
		var name string
		err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
		return n, n - c.own*(c.reads+1), err
	}
	return c, nil
}

// metricsTimeout bounds one reading of etcd's metrics.
const metricsTimeout = 5 * time.Second

func countEtcd(cfg driver.Config) (*Counter, error) {
	var urls []string
	for _, addr := range cfg.List("address") {
		if !strings.Contains(addr, "://") {
			addr = "http://" + addr
		}
		urls = append(urls, addr+"/metrics")
	}
	client := &http.Client{Timeout: metricsTimeout, Transport: &http.Transport{}}
	c := &Counter{nodes: float64(len(urls))} // to read metrics is no gRPC
	c.close = func() error { client.CloseIdleConnections(); return nil }
	c.total = func(ctx context.Context) (run, sent float64, err error) {
		for _, url := range urls {
			n, err := received(ctx, client, url)
			if err != nil {
				return 0, 0, err
			}
			run += n
		}
		return run, run, nil
	}
	return c, nil
}

// received sums up the messages of all methods.
func received(ctx context.Context, client *http.Client, url string) (sum float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{"); ok {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("baseline: %s: %w", url, err)
			}
			sum += n
		}
	}
	return sum, nil
}
