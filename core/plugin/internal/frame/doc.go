// Package frame implements the data path of protocol version 2. It sends operations as frames over
// Unix sockets, many frames in one write. The file lockpb/data.md specifies the data path.
//
// Host and plugin never delay a frame to wait for more frames. A goroutine writes its frame at
// once, together with all queued frames. If another goroutine is writing, the frame is queued, and
// the other goroutine writes it. So a single request costs one write and wakes the other process at
// once. Under load, one write carries all frames that were queued during the previous write.
//
// # Where is what
//
// In the host, link.go has the connections and the calls under way, ops.go has the operations, and
// reader.go reads replies. In the plugin, listen.go has the socket, session.go receives a host's
// requests and ends late ones, and worker.go executes them.
//
// In both processes, request.go, reply.go and codec.go encode the contents of frames. inbox.go
// reads frames. outbox.go, writeend_linux.go and writeend_other.go write frames. peer.go,
// peer_linux.go and peer_other.go find out which process is at the other end.
package frame
