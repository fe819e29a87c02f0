//go:build !linux

package serve

import (
	"errors"
	"os"
)

// openPidfd returns nil: this system has no such descriptors.
func openPidfd(int) *os.File { return nil }

func awaitPidfd(*os.File) error { return errors.ErrUnsupported }
