//go:build !linux

package redisnode

import "time"

// sinceBoot reads a monotonic clock.
func sinceBoot() time.Duration { return time.Since(started) }
