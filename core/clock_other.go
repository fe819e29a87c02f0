//go:build !linux

package core

import "time"

// bootTime returns false, as this system has no clock that counts suspends. So core notices none.
func bootTime() (time.Duration, bool) { return 0, false }
