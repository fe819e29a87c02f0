package frame

import (
	"cmp"
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
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = cmp.Or(err, credErr); err != nil {
		return 0, 0, false, err
	}
	return int(cred.Pid), int(cred.Uid), true, nil
}
