// Package frame is the data path of protocol version 2: it sends operations as
// frames over a Unix socket, many in one write. lockpb/data.md specifies it.
//
// Neither end delays a frame in the hope of more frames. A goroutine writes its frame at once,
// together with all queued frames. If another goroutine is writing, the frame is queued, and the
// other goroutine writes it. So a single request costs one write and wakes the other process at
// once. Under load, one write carries all frames that were queued during the previous write.
//
// # Where is what
//
// The host: link.go has the connections and the calls under way, ops.go has the operations, and
// reader.go reads replies. The plugin: listen.go has the socket, session.go has the requests of a
// host, worker.go and starter.go execute the requests, and deadlines.go ends late requests.
//
// Both ends: request.go and reply.go have the contents of frames, codec.go their parts and limits.
// inbox.go reads frames, outbox.go writes them, with writeend_linux.go and writeend_other.go.
// peer.go, peer_linux.go and peer_other.go find out which process is at the other end.
package frame
