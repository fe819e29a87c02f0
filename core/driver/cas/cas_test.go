package cas_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/cas"
	"github.com/lockbench/lockbench/core/drivertest"
)

// The store "all" reports changes and the times of writes. The store "least" reports neither.
func TestConformance(t *testing.T) {
	for name, open := range map[string]func(d *data) cas.Store{
		"all":   func(d *data) cas.Store { return watched{&client{data: d}} },
		"least": func(d *data) cas.Store { d.silent = true; return &client{data: d} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
				return (&data{}).harness(claims, open)
			})
		})
	}
}

func (d *data) harness(p driver.Properties, open func(*data) cas.Store) *drivertest.Harness {
	return &drivertest.Harness{
		InProcess: true, NoServer: true, Leftovers: d.leftovers,
		Open: func(t drivertest.T) driver.Backend {
			b := cas.New(open(d), p, time.Second)
			t.Cleanup(func() { _ = b.Close(context.Background()) })
			return b
		},
	}
}

// No lease may end too early if the store's clock shows only seconds.
func TestClockOfSeconds(t *testing.T) {
	coarse := claims
	coarse.TTLMin, coarse.TTLStep = time.Second, time.Second
	drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
		return (&data{step: time.Second}).harness(coarse, func(d *data) cas.Store { return &client{data: d} })
	}, "K2 a refusal carries the remaining TTL", "L2 no other owner gets the lock before its holder's deadline", "L2 a grant lives for its TTL", "L2 a renewal lives for its TTL")
}

// leftovers returns the keys that will not expire within 2 minutes.
func (d *data) leftovers(drivertest.T) (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.entries {
		if time.Until(d.ends[key]) > 2*time.Minute {
			keys = append(keys, key)
		}
	}
	return keys
}
