package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AdoptOrphans makes this process the parent of every descendant that loses its
// own, as the first process of a container is anyway (prctl(2)).
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Rename gives this process another name than that of its program, in at most 15
// bytes: the one that killall and pkill look for (proc_pid_comm(5)).
func Rename(name string) error {
	return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte(name), 0)
}
