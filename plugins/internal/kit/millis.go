package kit

import "time"

// UpToMillis rounds d up to a whole millisecond, in which stores count and people
// read: never down, because a lock must not be free, nor look free, before its time.
func UpToMillis(d time.Duration) time.Duration { return time.Duration(Millis(d)) * time.Millisecond }

// Millis is how many milliseconds UpToMillis makes of d.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
