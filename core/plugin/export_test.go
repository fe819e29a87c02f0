package plugin

import "github.com/lockbench/lockbench/core/driver"

// CloseLifeline closes the host's end of the pipe by which a plugin notices the host's death.
func CloseLifeline(b driver.Backend) error {
	return b.(*backend).process().run.lifeline.Close()
}

// Framed reports whether the plugin of the backend b uses the data socket of protocol version 2.
func Framed(b driver.Backend) bool { return b.(*backend).process().data != nil }
