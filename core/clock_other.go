//go:build !linux

package core

import "time"

// bootTime returns false, because this system has no such clock. So suspends are not noticed.
func bootTime() (time.Duration, bool) { return 0, false }
