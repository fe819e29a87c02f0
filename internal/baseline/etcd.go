package baseline

import (
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
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
