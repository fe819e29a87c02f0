//go:build !linux

package command

import "syscall"

// dieWithParent does nothing, because only Linux supports it.
func dieWithParent(*syscall.SysProcAttr) {}
