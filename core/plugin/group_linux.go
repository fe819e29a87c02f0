package plugin

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// wait waits until p ends, kills the rest of the process group that p leads, and then reaps p. This
// order is safe, because no other process group can get p's number until p is reaped.
func (p *osProcess) wait() {
	// waitid fails if other code in this process has already waited for the process.
	_ = waitid(p.id, unix.WEXITED|unix.WNOWAIT)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	_ = p.cmd.Wait() // see status
	p.reaped = true
}

// killGroup kills the process p and the process group that it leads. No code may have reaped p yet,
// because another process or group can get the id of a reaped process.
func killGroup(p *os.Process) {
	err := unix.ENOSYS
	// If WithHandle fails, the system has no pidfd, and err is still ENOSYS.
	_ = p.WithHandle(func(handle uintptr) {
		err, _ = unix.PidfdSendSignal(int(handle), unix.SIGKILL, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP).(syscall.Errno)
	})
	if err == 0 || err == unix.ESRCH {
		return
	}
	// Linux before 6.9 cannot signal a group by pidfd. waitid succeeds only while p is not reaped, so
	// no other group can have p's number yet.
	if waitid(p.Pid, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG) == nil {
		_ = unix.Kill(-p.Pid, unix.SIGKILL)
		return
	}
	_ = p.Kill() // fails only if the process has ended
}

func waitid(pid, options int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, options, nil); err != unix.EINTR {
			return err
		}
	}
}
