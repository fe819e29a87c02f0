package command

import "syscall"

// dieWithParent makes the kernel kill the command when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
