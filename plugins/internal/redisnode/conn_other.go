//go:build !linux

package redisnode

import "net"

// polled returns conn unchanged, because the gain of polling was measured on Linux only.
func polled(conn net.Conn) net.Conn { return conn }

// hungUp always returns false, because here the client finds out that the other
// end of conn has closed it.
func hungUp(net.Conn) bool { return false }
