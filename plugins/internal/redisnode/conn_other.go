//go:build !linux

package redisnode

import "net"

// polled returns conn unchanged, because the gain of polling was measured on Linux only.
func polled(conn net.Conn) net.Conn { return conn }

// hungUp always returns false, because on these systems the client itself finds
// out whether the other end has closed conn.
func hungUp(net.Conn) bool { return false }
