package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AdoptOrphans makes this process the new parent of each descendant whose parent ends. In a
// container, the first process is that parent without this call (prctl(2)).
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Rename gives this process a name of at most 15 bytes, under which killall and pkill then find it,
// instead of its program's name (proc_pid_comm(5)).
func Rename(name string) error {
	return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte(name), 0)
}
