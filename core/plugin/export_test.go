package plugin

import "github.com/lockbench/lockbench/core/driver"

// CloseLifeline closes the host's end of the pipe whose end tells b's plugin that the host died.
func CloseLifeline(b driver.Backend) error {
	return b.(*backend).process().run.lifeline.Close()
}

// Framed reports whether operations go over the data socket.
func Framed(b driver.Backend) bool { return b.(*backend).process().data != nil }
