package baseline

import (
	"context"
	"maps"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/plugins/etcd"
)

const (
	etcdModule      = "go.etcd.io/etcd/client/v3"
	etcdDialTimeout = 5 * time.Second
)

// dialEtcd makes the client of all baselines from the configuration of the etcd
// backend, whose tls keys it does not read: a https:// address is enough for a
// server that the system trusts.
func dialEtcd(cfg driver.Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: cfg.List("address"), Username: cfg["username"], Password: cfg["password"],
		DialTimeout: etcdDialTimeout, Logger: zap.NewNop(),
	})
}

// etcdPrefix keeps a baseline's keys apart from those of the backend, below the
// prefix that the user has the right to.
func etcdPrefix(cfg driver.Config) string {
	own := cfg["prefix"]
	if own == "" {
		own = etcd.DefaultPrefix
	}
	return own + strings.ReplaceAll(keyPrefix, ":", "/")
}

var inProcessEtcd = Baseline{
	Name:    "etcd-in-process",
	Doc:     "our etcd library without the plugin process",
	Backend: "etcd",
	Open: func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		own := maps.Clone(cfg)
		own["prefix"] = etcdPrefix(cfg) + "in-process/"
		full, err := etcd.Spec.CheckConfig(own)
		if err != nil {
			return nil, err
		}
		b, err := etcd.Spec.Open(ctx, full, discard)
		if err != nil {
			return nil, err
		}
		return load.NewCore(b, &core.Options{Logger: discard}), nil
	},
}
