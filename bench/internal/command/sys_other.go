//go:build !linux

package command

import "syscall"

// dieWithParent does nothing on systems other than Linux.
func dieWithParent(*syscall.SysProcAttr) {}
