package store

import (
	"context"
	"errors"
)

// savedKey is a key as it was once.
type savedKey struct {
	name, data string
	expires    int64 // in ms since 1970, or below 0
}

// saveKeys remembers all keys of a server, one after the other.
func saveKeys(ctx context.Context, s *redisStore, n int) error {
	s.saved = nil
	keys := s.admins[n].Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		expires, err := s.admins[n].Do(ctx, "PEXPIRETIME", keys.Val()).Int64()
		if err != nil {
			return err
		}
		// A key that has gone meanwhile is not saved.
		if data, err := s.admins[n].Dump(ctx, keys.Val()).Result(); err == nil {
			s.saved = append(s.saved, savedKey{keys.Val(), data, expires})
		}
	}
	return keys.Err()
}

// restoreKeys replaces all keys by those that were saved. What has expired since
// the server does not take.
func restoreKeys(ctx context.Context, s *redisStore, n int) error {
	errs := []error{s.do(ctx, n, "FLUSHALL")}
	for _, key := range s.saved {
		errs = append(errs, s.do(ctx, n, "RESTORE", key.name, max(0, key.expires), key.data, "ABSTTL", "REPLACE"))
	}
	s.saved = nil
	return errors.Join(errs...)
}
