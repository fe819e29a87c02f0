//go:build !linux

package frame

import "net"

// peerOf does not know here.
func peerOf(*net.UnixConn) (pid, uid int, known bool, err error) { return 0, 0, false, nil }
