//go:build !linux

package command

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
