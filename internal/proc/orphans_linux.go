package proc

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// AdoptOrphans makes this process the new parent of each descendant whose parent ends. Without this
// call, the new parent in a container is the container's first process (prctl(2)).
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Reap waits until a command has ended, calls the function clear, and only then reaps the command.
// So during clear no other process or process group can have the command's pid.
func Reap(cmd *exec.Cmd, clear func()) error {
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	clear()
	return cmd.Wait()
}

// Rename gives this process a name of at most 15 bytes (proc_pid_comm(5)). killall and pkill then
// find the process by this name.
func Rename(name string) error {
	return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte(name), 0)
}
