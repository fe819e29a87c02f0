// Package millis rounds durations up to whole milliseconds, in which stores
// count and people read: never down, because a lock must not be free, nor look
// free, before its time.
package millis

import "time"

// Up rounds d up to a whole millisecond.
func Up(d time.Duration) time.Duration { return time.Duration(Count(d)) * time.Millisecond }

// Count is how many milliseconds Up makes of d.
func Count(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
