//go:build !linux

package core

import "time"

// bootTime returns false: there is no clock to read, so suspends are not counted on this system.
func bootTime() (time.Duration, bool) { return 0, false }
