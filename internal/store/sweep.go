package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
)

// Sweep removes all that begins with prefix from the servers of a configuration.
// What is not known how to be swept is left. Prefixes are never empty.
func (s *Store) Sweep(ctx context.Context, cfg driver.Config, prefix string) error {
	if s.sweep == nil || prefix == "" {
		return nil
	}
	if s.sweep(ctx, cfg, prefix) != nil {
		// The cause may quote an address with a password in it.
		return fmt.Errorf("%s: what begins with %q may be left on the server, which could not be asked: look, and remove it by hand", s.Name, prefix)
	}
	return nil
}

// sweepRedis removes keys one by one: those of a Cluster are in different slots.
func sweepRedis(ctx context.Context, cfg driver.Config, prefix string) error {
	c, err := DialRedis(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return sweepNode(ctx, c, prefix) })
	}
	return sweepNode(ctx, c, prefix)
}

func sweepRedisNodes(ctx context.Context, cfg driver.Config, prefix string) error {
	nodes, err := DialRedisNodes(cfg)
	if err != nil {
		return err
	}
	defer nodes.Close()
	var errs []error
	for _, c := range nodes {
		errs = append(errs, sweepNode(ctx, c, prefix))
	}
	return errors.Join(errs...)
}

// glob makes SCAN read a prefix literally.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func sweepNode(ctx context.Context, c redis.Cmdable, prefix string) error {
	keys := c.Scan(ctx, 0, glob.Replace(prefix)+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// foreignKey names the key of a lock. One whose name is written otherwise in its
// key can have no foreign holder.
func foreignKey(prefix, name string) string {
	return fmt.Sprintf("its key %q holds no lease of ours; if nothing else needs it: redis-cli DEL '%s'",
		prefix+name, strings.ReplaceAll(prefix+name, "'", `'\''`))
}

func sweepSQL(ctx context.Context, cfg driver.Config, prefix string) error {
	db, err := DialSQL(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?", len(prefix), prefix)
	if err != nil {
		return err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	errs := []error{rows.Err()}
	for _, table := range tables {
		_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS `"+table+"`")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func sweepEtcd(ctx context.Context, cfg driver.Config, prefix string) error {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.List("address"), Username: cfg["username"], Password: cfg["password"], DialTimeout: timeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Delete(ctx, prefix, clientv3.WithPrefix())
	return err
}
