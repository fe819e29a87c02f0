package command

import "syscall"

// dieWithParent has the kernel end the command with the thread that starts it.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
