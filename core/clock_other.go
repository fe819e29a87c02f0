//go:build !linux

package core

import "time"

// bootTime has no clock to read: suspends are not counted on this system.
func bootTime() (time.Duration, bool) { return 0, false }
