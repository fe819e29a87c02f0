package plugin

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// wait waits for the process, which leads a group, and kills the rest of the
// group before it takes the status of the process: until then no other group
// can get its number.
func (p *osProcess) wait() {
	// waitid fails when other code in this process has waited for it.
	_ = waitid(p.id, unix.WEXITED|unix.WNOWAIT)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	_ = p.cmd.Wait() // see status
	p.reaped = true
}

// killGroup ends p and the process group that it leads. We have not waited
// for p. If other code in this process has, the number of p may belong by
// now to a process or group that is not ours.
func killGroup(p *os.Process) {
	err := unix.ENOSYS
	// An error of WithHandle itself says that there is no handle.
	_ = p.WithHandle(func(handle uintptr) {
		err, _ = unix.PidfdSendSignal(int(handle), unix.SIGKILL, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP).(syscall.Errno)
	})
	if err == 0 || err == unix.ESRCH {
		return
	}
	// This is Linux before 6.9. A process that is not waited for keeps its number.
	if waitid(p.Pid, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG) == nil {
		_ = unix.Kill(-p.Pid, unix.SIGKILL)
		return
	}
	_ = p.Kill() // it fails only when the process has ended
}

func waitid(pid, options int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, options, nil); err != unix.EINTR {
			return err
		}
	}
}
