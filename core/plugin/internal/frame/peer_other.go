//go:build !linux

package frame

import "net"

// peerOf returns known as false: it cannot find out the peer on this system.
func peerOf(*net.UnixConn) (pid, uid int, known bool, err error) { return 0, 0, false, nil }
