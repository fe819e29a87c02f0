package redis

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

func TestKeysComeFromOptions(t *testing.T) {
	byName := map[string]driver.Key{}
	for _, k := range Spec.Keys {
		if k.Doc == "" || byName[k.Name].Name != "" {
			t.Errorf("key %+v has no doc, or twice its name", k)
		}
		byName[k.Name] = k
	}
	for name, want := range map[string]driver.Key{
		"address":           {Type: driver.TypeList, Default: "localhost:6379"},
		"username":          {Type: driver.TypeString},
		"password":          {Type: driver.TypeString, Secret: true},
		"sentinel_password": {Type: driver.TypeString, Secret: true},
		"db":                {Type: driver.TypeInt, Default: "0"},
		"prefix":            {Type: driver.TypeString},
		"cluster":           {Type: driver.TypeBool, Default: "false"},
		"tls_ca_file":       {Type: driver.TypeString},
		"dial_timeout":      {Type: driver.TypeDuration, Default: "2s"},
	} {
		k := byName[name]
		if k.Type != want.Type || k.Default != want.Default || k.Secret != want.Secret || k.Required {
			t.Errorf("key %s is %+v", name, k)
		}
	}
}

func TestResolve(t *testing.T) {
	resolve := func(o Options) (target, error) {
		config.Fill(&o)
		return o.resolve()
	}
	r, err := resolve(Options{})
	must(t, err)
	if r.opts.PoolSize != 2 || r.opts.RequestTimeout != 2*time.Second || !slices.Equal(r.addrs, []string{"localhost:6379"}) {
		t.Errorf("defaults: %+v", r)
	}
	r, err = resolve(Options{Address: []string{"rediss://u:p@db1/3"}})
	must(t, err)
	if r.opts.Username != "u" || r.opts.Password != "p" || r.opts.DB != 3 || !r.tls || r.topology != redisnode.Alone {
		t.Errorf("URL: %+v", r)
	}
	r, err = resolve(Options{Address: []string{"s1", "s2:7"}, SentinelMaster: "m"})
	must(t, err)
	if !slices.Equal(r.addrs, []string{"s1:26379", "s2:7"}) || r.topology != redisnode.Sentinels {
		t.Errorf("sentinels: %+v", r)
	}
}

func TestBadConfiguration(t *testing.T) {
	for _, c := range []struct {
		cfg  driver.Config
		says string
	}{
		{driver.Config{"address": "db1:port"}, "port"},
		{driver.Config{"address": "redis://u:s3cret@db1:port"}, "port"},
		{driver.Config{"address": "redis://u:s3cret@db1", "password": "other"}, "password"},
		{driver.Config{"address": "redis://u:s3cret@db1", "username": "v"}, "username"},
		{driver.Config{"address": "redis://db1/3", "db": "4"}, "db"},
		{driver.Config{"address": "a,b"}, "2 addresses"},
		{driver.Config{"address": "unix:///s,b", "cluster": "true"}, "unix"},
		{driver.Config{"address": "unix:///s", "tls_enabled": "true"}, "unix"},
		{driver.Config{"cluster": "true", "sentinel_master": "m"}, "cluster and sentinel_master"},
		{driver.Config{"cluster": "true", "wait_replicas": "1"}, "cluster and wait_replicas"},
		{driver.Config{"sentinel_password": "s3cret"}, "sentinel_master"},
		{driver.Config{"username": "u"}, "username and password"},
		{driver.Config{"db": "-1"}, "db is -1"},
		{driver.Config{"wait_replicas": "-1"}, "wait_replicas is -1"},
		{driver.Config{"wait_timeout": "-1s"}, "wait_timeout is -1s"},
		{driver.Config{"pool_size": "-1"}, "pool_size is -1"},
		{driver.Config{"dial_timeout": "-1s"}, "dial_timeout"},
		{driver.Config{"prefix": "a{b}"}, "braces"},
		{driver.Config{"tls_cert_file": "x"}, "tls_cert_file and tls_key_file"},
		{driver.Config{"tls_ca_file": "/does/not/exist"}, "tls_ca_file"},
		{driver.Config{"tls_insecure": "true", "tls_enabled": "false"}, "tls_enabled=false and tls_insecure"},
		{driver.Config{"address": "rediss://db1", "tls_enabled": "false"}, "tls_enabled=false and address"},
		{driver.Config{"password": "s3cret", "password_file": "/x"}, "password and password_file"},
		{driver.Config{"address": "redis://u:s3cret@db1", "password_file": "/x"}, "address and password_file"},
		{driver.Config{"password_file": "/does/not/exist"}, "password_file"},
		{driver.Config{"sentinel_password_file": "/x"}, "sentinel_master"},
		{driver.Config{"sentinel_master": "m", "sentinel_password_file": "/does/not/exist"}, "sentinel_password_file"},
		{driver.Config{"sentinel_master": "m", "sentinel_password_file": "/x", "sentinel_password": "s3cret"}, "sentinel_password and sentinel_password_file"},
		{driver.Config{"sentinel_tls_enabled": "true"}, "sentinel_master"},
		{driver.Config{"address": "rediss://s1", "sentinel_master": "m", "sentinel_tls_enabled": "false"}, "sentinel_tls_enabled=false and address"},
		{driver.Config{"adress": "x"}, `did you mean address`},
		{driver.Config{"db": "one"}, "db is not a valid int"},
	} {
		cfg, err := Spec.CheckConfig(c.cfg)
		if err == nil {
			_, err = Spec.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
		}
		if !errors.Is(err, driver.ErrConfig) {
			t.Errorf("%v: %v", c.cfg, err)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, c.says) || strings.Contains(msg, "s3cret") {
			t.Errorf("%v: %q does not say %q", c.cfg, msg, c.says)
		}
	}
}
