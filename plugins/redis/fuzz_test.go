package redis

import (
	"errors"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// FuzzConfig checks that a configuration is either read with an address and a valid pool size, or
// refused with an error that wraps ErrConfig.
func FuzzConfig(f *testing.F) {
	f.Add("address=redis://u:hush-hush@db:7000/3\nprefix=a{b}", "", "")
	f.Add("address=a,b:1,[::1]\ncluster=true\nwait_timeout=-1s", "hush-hush", "")
	f.Add("address=unix://u:p@/run/s?db=2\nusername=v\ntls_insecure=1", "hush-hush", "")
	f.Add("address=,,", "", "")
	f.Add("address=s1,s2\nsentinel_master=m\npool_size=99999999999\ndb=7", "", "hush-hush")
	f.Fuzz(func(t *testing.T, text, password, sentinel string) {
		cfg := configtest.Read(text)
		cfg["password"], cfg["sentinel_password"] = password, sentinel
		target, err := configured(cfg)
		if err == nil {
			if len(target.addrs) == 0 || target.addrs[0] == "" || target.opts.PoolSize > redisnode.MaxPool {
				t.Errorf("%q is read as %+v", text, target)
			}
			return
		}
		if !errors.Is(err, driver.ErrConfig) {
			t.Errorf("%v is not an ErrConfig", err)
		}
	})
}

// FuzzNeedle checks that no error about a configuration shows a password, even
// one that a user wrote into the wrong key.
func FuzzNeedle(f *testing.F) {
	configtest.FuzzNeedle(f, Spec, func(cfg driver.Config) error {
		_, err := configured(cfg)
		return err
	})
}

// configured does what Open does with a configuration, and closes the client that it makes.
func configured(cfg driver.Config) (target, error) {
	cfg, err := Spec.CheckConfig(cfg)
	if err != nil {
		return target{}, err
	}
	var o Options
	config.Decode(cfg, &o)
	t, err := o.resolve()
	if err != nil {
		return target{}, err
	}
	client, err := t.newClient(&redisnode.Links{}, nil)
	if err != nil {
		return target{}, err
	}
	return t, client.Close()
}
