// Package frame is the data path of protocol version 2: operations as frames
// over a unix socket, many to a write. lockpb/data.md is its specification.
//
// Neither end waits for company. A goroutine that has a frame while no other
// writes, writes it, with all frames queued by then. If another is writing,
// it leaves the frame to that one. So a request that is alone costs one
// write and wakes the other process at once, and under load a write carries
// the frames that have gathered during the one before.
//
// # Where is what
//
// The host: link.go has the connections and calls under way, ops.go the operations, reader.go
// the replies. The plugin: listen.go has the socket, session.go the requests of a host,
// worker.go and starter.go do them, deadlines.go ends them.
//
// Both: request.go and reply.go are what is in a frame, codec.go their parts and limits;
// inbox.go reads, outbox.go writes, with writeend_linux.go and writeend_other.go; peer.go,
// peer_linux.go and peer_other.go say which process is at the other end.
package frame
