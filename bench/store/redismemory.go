package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What is written to servers whose memory is full: so much that it takes the
// place of everything else, of which there is little.
const (
	spareMemory = 4 << 20
	fillerSize  = 64 << 10
	fillers     = 1000
)

// redisMemory is that of several servers.
type redisMemory []*redis.Client

// Evict implements fault.Memory.
func (m redisMemory) Evict(ctx context.Context, on bool) error {
	var errs []error
	for _, c := range m {
		if !on {
			errs = append(errs, c.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err(), c.ConfigSet(ctx, "maxmemory", "0").Err(),
				c.Unlink(ctx, fillerKeys()...).Err())
			continue
		}
		info, err := c.InfoMap(ctx, "memory").Result()
		if err != nil {
			return err
		}
		used, err := strconv.Atoi(info["Memory"]["used_memory"])
		errs = append(errs, err, c.ConfigSet(ctx, "maxmemory", strconv.Itoa(used+spareMemory)).Err(),
			c.ConfigSet(ctx, "maxmemory-policy", "allkeys-random").Err())
	}
	return errors.Join(errs...)
}

// Fill implements fault.Memory.
func (m redisMemory) Fill(ctx context.Context) error {
	value := strings.Repeat(" ", fillerSize)
	for _, key := range fillerKeys() {
		for _, c := range m {
			if err := c.Set(ctx, key, value, 0).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

func fillerKeys() []string {
	keys := make([]string, fillers)
	for i := range keys {
		keys[i] = fmt.Sprint("filler:", i)
	}
	return keys
}
