package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

type store struct {
	*servers.Environment
	peers   *Peers        // nil for a cluster of one member
	stray   servers.Nodes // another cluster, to which hosts are led by mistake
	removed []string      // the URLs of a member that was removed
}

// The with method calls do with a client of the given members, or of all members if none is given.
func (s *store) with(do func(*clientv3.Client) error, members ...int) error {
	var at []string
	for n, server := range s.Servers {
		if len(members) == 0 || slices.Contains(members, n) {
			at = append(at, server.Addr())
		}
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: at, DialTimeout: servers.Timeout, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

func (s *store) Leader(ctx context.Context) (leads int, err error) {
	err = s.with(func(c *clientv3.Client) error {
		for n, m := range s.Servers {
			status, err := c.Status(ctx, m.Addr())
			if err != nil {
				return err
			}
			if leads = n; status.Leader == status.Header.MemberId {
				return nil
			}
		}
		return errors.New("no member leads")
	})
	return leads, err
}

func (s *store) Check(ctx context.Context) error {
	var leaders []uint64
	for n, m := range s.Servers {
		err := s.with(func(c *clientv3.Client) error {
			status, err := c.Status(ctx, m.Addr())
			if err != nil {
				return err
			}
			if len(status.Errors) > 0 {
				return fmt.Errorf("it says %q", status.Errors)
			}
			leaders = append(leaders, status.Leader)
			_, err = c.Get(ctx, "health")
			return err
		}, n)
		if err != nil {
			return fmt.Errorf("member %d: %w", n, err)
		}
	}
	if leaders = slices.Compact(leaders); len(leaders) != 1 || leaders[0] == 0 {
		return fmt.Errorf("its leaders are %x", leaders)
	}
	return s.with(func(c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err == nil && len(list.Members) != len(s.Servers) {
			err = fmt.Errorf("it has %d members", len(list.Members))
		}
		return err
	})
}

// All keys of the backend begin with etcdPrefix. The keys of
// holders and waiters begin with etcdNames.
const (
	etcdPrefix = "lockbench/"
	etcdNames  = etcdPrefix + "\xffn"
)

func (s *store) Left(ctx context.Context, prefix string) (left []string, err error) {
	err = s.with(func(c *clientv3.Client) error {
		keys, err := c.Get(ctx, etcdNames+prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range keys.Kvs {
			left = append(left, fmt.Sprintf("the key %q", kv.Key))
		}
		return nil
	})
	return left, err
}

func count(cfg driver.Config) (*servers.Counter, error) {
	c := &servers.Counter{End: func() error { return nil }} // reading metrics adds no gRPC message
	for _, addr := range cfg.List("address") {
		if !strings.Contains(addr, "://") {
			addr = "http://" + addr
		}
		c.Nodes = append(c.Nodes, func(ctx context.Context) (servers.Served, error) {
			n, err := received(ctx, addr+"/metrics")
			return servers.Served{Run: n, Sent: n, Busy: math.NaN()}, err
		})
	}
	return c, nil
}

// received returns the number of gRPC messages that a member has received for all gRPC methods.
func received(ctx context.Context, url string) (sum float64, err error) {
	metrics, err := get(ctx, url)
	for line := range strings.Lines(metrics) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "grpc_server_msg_received_total{"); ok {
			n, wrong := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			sum, err = sum+n, errors.Join(err, wrong)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("etcd: %s: %w", url, err)
	}
	return sum, nil
}

func remove(ctx context.Context, cfg driver.Config, prefix string) error {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.List("address"), Username: cfg["username"], Password: cfg["password"], DialTimeout: servers.Timeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Delete(ctx, prefix, clientv3.WithPrefix())
	return err
}
