//go:build !linux

package serve

import (
	"errors"
	"os"
)

// openPidfd returns nil, because this system has no pidfds.
func openPidfd(int) *os.File { return nil }

func awaitPidfd(*os.File) error { return errors.ErrUnsupported }
