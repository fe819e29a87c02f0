package kit

import "time"

// UpToMillis rounds d up to a whole millisecond, the unit of stores and reports. It
// never rounds down, because a lock must not be free, or look free, too early.
func UpToMillis(d time.Duration) time.Duration { return time.Duration(Millis(d)) * time.Millisecond }

// Millis returns d in milliseconds, rounded up as by UpToMillis.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
