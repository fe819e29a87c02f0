//go:build !linux

package command

import "syscall"

// dieWithParent does nothing here.
func dieWithParent(*syscall.SysProcAttr) {}
