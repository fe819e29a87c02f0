package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What is written to servers whose memory is full: so much that it takes the
// place of everything else, of which there is little.
const (
	spareMemory = 4 << 20
	fillerSize  = 64 << 10
	fillers     = 1000
)

// evict lets servers delete keys when their memory is full, which it soon is.
func (s *store) evict(ctx context.Context, on bool) error {
	var errs []error
	for _, c := range s.admins {
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

// fill writes so much that they do.
func (s *store) fill(ctx context.Context) error {
	value := strings.Repeat(" ", fillerSize)
	for _, key := range fillerKeys() {
		for _, c := range s.admins {
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

// savedKey is a key as it was once.
type savedKey struct {
	name, data string
	expires    int64 // in ms since 1970, or below 0
}

// saveKeys remembers all keys of a server, one after the other.
func saveKeys(ctx context.Context, s *store, n int) error {
	s.saved = nil
	keys := s.admins[n].Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		expires, err := s.admins[n].Do(ctx, "PEXPIRETIME", keys.Val()).Int64()
		if err != nil {
			return err
		}
		// A key that has gone meanwhile is not saved, also when it is there again:
		// it would be restored without an end.
		const gone = -2
		if data, err := s.admins[n].Dump(ctx, keys.Val()).Result(); err == nil && expires != gone {
			s.saved = append(s.saved, savedKey{keys.Val(), data, expires})
		}
	}
	return keys.Err()
}

// restoreKeys replaces all keys by those that were saved. What has expired since
// the server does not take.
func restoreKeys(ctx context.Context, s *store, n int) error {
	errs := []error{s.do(ctx, n, "FLUSHALL")}
	for _, key := range s.saved {
		errs = append(errs, s.do(ctx, n, "RESTORE", key.name, max(0, key.expires), key.data, "ABSTTL", "REPLACE"))
	}
	s.saved = nil
	return errors.Join(errs...)
}
