//go:build !linux

package frame

import "net"

// newWriteEnd returns conn.
func newWriteEnd(conn *net.UnixConn) (writeEnd, error) { return conn, nil }
