package plugin

import "github.com/lockbench/lockbench/core/driver"

// CloseLifeline closes the host's side of the pipe by which b's plugin notices the host's death.
func CloseLifeline(b driver.Backend) error {
	return b.(*backend).process().run.lifeline.Close()
}

// Framed reports whether b's plugin uses the data socket of protocol version 2.
func Framed(b driver.Backend) bool { return b.(*backend).process().data != nil }
