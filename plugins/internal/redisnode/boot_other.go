//go:build !linux

package redisnode

import "time"

// sinceBoot reads a clock that never goes back.
func sinceBoot() time.Duration { return time.Since(started) }
