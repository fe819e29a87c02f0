//go:build !linux

package redisnode

import "net"

// polled returns conn unchanged. The gain of pollConn (conn_linux.go) is known only for Linux.
func polled(conn net.Conn) net.Conn { return conn }

// hungUp returns false. Outside Linux, the client itself notices that a server has closed conn.
func hungUp(net.Conn) bool { return false }
