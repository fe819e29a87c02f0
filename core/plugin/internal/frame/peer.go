package frame

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
)

// ErrPeer means that an unexpected process is at the other end of the data socket.
var ErrPeer = errors.New("data socket leads to another process")

// Peer returns the id of the process at the other end of conn. If this process opened conn, the
// other process is the one that listens. If the system does not report the id, Peer returns 0.
func Peer(conn *net.UnixConn) int {
	pid, _, known, err := peerOf(conn)
	if err != nil || !known {
		return 0
	}
	return pid
}

// checkPeer returns an error unless the peer of conn runs as this user and has one of these pids.
// If the system reports no peer, only the socket directory's permissions keep other users out.
func checkPeer(conn *net.UnixConn, pids ...int) error {
	pid, uid, known, err := peerOf(conn)
	if err != nil {
		return fmt.Errorf("data socket: %w", err)
	}
	if known && (uid != os.Geteuid() || !slices.Contains(pids, pid)) {
		return fmt.Errorf("%w: process %d of user %d instead of one of %v of user %d", ErrPeer, pid, uid, pids, os.Geteuid())
	}
	return nil
}
