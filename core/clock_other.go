//go:build !linux

package core

import "time"

// bootTime returns false, because on this system core has no clock that goes on in a suspend.
func bootTime() (time.Duration, bool) { return 0, false }
