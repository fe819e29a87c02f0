package kit

import "time"

// UpToMillis rounds the duration d up to whole milliseconds. It never rounds down, because a lock
// must not be free, or seem free, too early.
func UpToMillis(d time.Duration) time.Duration { return time.Duration(Millis(d)) * time.Millisecond }

// Millis returns the duration d as a number of milliseconds, rounded up.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
