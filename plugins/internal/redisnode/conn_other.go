//go:build !linux

package redisnode

import "net"

// polled returns conn unchanged. A gain by pollConn (conn_linux.go) was measured only on Linux.
func polled(conn net.Conn) net.Conn { return conn }

// hungUp returns false. On these systems the client itself notices that a server has closed conn.
func hungUp(net.Conn) bool { return false }
