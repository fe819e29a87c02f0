package plugin

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// checkPrivileges returns an error if the binary would start with more
// privileges than its host has. A plugin that uses package serve gives
// up the ability to gain privileges, but only after it has started.
func checkPrivileges(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return errors.New("it is set-user-ID or set-group-ID")
	}
	// Getxattr fails if the file has no capabilities or its file system does not support them.
	if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 {
		return errors.New("it has file capabilities")
	}
	return nil
}
