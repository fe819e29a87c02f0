package frame

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
)

// ErrPeer says that the wrong process is at the other end of the data
// socket.
var ErrPeer = errors.New("data socket leads to another process")

// Peer returns the id of the process at the other end of conn. For a listener that
// is the process that began to listen. It is 0 where the system does not say.
func Peer(conn *net.UnixConn) int {
	pid, _, known, err := peerOf(conn)
	if err != nil || !known {
		return 0
	}
	return pid
}

// checkPeer refuses a connection unless this user's process pid, or one of
// several, is at its other end. Where the system does not say, only the
// directory of the socket keeps others out.
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
