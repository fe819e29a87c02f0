package conform

import (
	"context"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/drivertest"
)

// housekeeping are the side keys of which a prefix has one each, however many
// locks it has seen: its control hash and the owners that were withdrawn, who
// are forgotten within two minutes.
var housekeeping = []string{"~c:{}", "~b:{}"}

// controlFields bounds the fields of the control hash. More of them would be
// one per lock.
const controlFields = 8

// redisLeftovers lists the keys of a prefix but for its housekeeping.
func redisLeftovers(t drivertest.T, addr, prefix string) []string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	var left []string
	it := c.Scan(ctx, 0, "", 1000).Iterator()
	for it.Next(ctx) {
		key, ours := strings.CutPrefix(it.Val(), prefix)
		if ours && !slices.Contains(housekeeping, key) {
			left = append(left, it.Val())
		}
	}
	must(t, it.Err())
	fields, err := c.HKeys(ctx, prefix+housekeeping[0]).Result()
	must(t, err)
	if len(fields) > controlFields {
		left = append(left, fields...)
	}
	slices.Sort(left)
	return slices.Compact(left)
}
