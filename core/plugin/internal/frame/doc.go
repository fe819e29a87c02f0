// Package frame is the data path of protocol version 2: operations as frames
// over a unix socket, many to a write. lockpb/data.md is its specification.
//
// Neither end waits for company. Whoever has a frame and finds nobody writing
// writes it, with all that has been queued by then; who finds somebody writing
// leaves it to them. So a request that is alone costs one write and wakes the
// other process at once, and under load a write carries what has gathered
// during the one before.
package frame
