package frame

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel which process is at the other end (unix(7), SO_PEERCRED).
func peerOf(conn *net.UnixConn) (pid, uid int, known bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, false, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, false, err
	}
	if credErr != nil {
		return 0, 0, false, credErr
	}
	return int(cred.Pid), int(cred.Uid), true, nil
}
