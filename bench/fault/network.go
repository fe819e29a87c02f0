package fault

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// BlackHole swallows everything in both directions, the ends of connections
// among it. They stay open and new ones are accepted, and nobody is told: the
// server, or this client's machine, is cut off.
func (p *Proxy) BlackHole() error { return p.harm(holeKind, nil, Requests, Replies) }

// LoseReplies lets requests through and swallows the answers.
func (p *Proxy) LoseReplies() error { return p.harm("timeout", swallow, Replies) }

// LoseRequests swallows the requests, and the ends of connections as well: the
// answer to what was sent before comes back.
func (p *Proxy) LoseRequests() error { return p.harm(holeKind, nil, Requests) }

// swallow are the attributes of a connection that is never closed.
var swallow = map[string]any{"timeout": 0}

// Delay holds every answer back for d, give or take jitter, both rounded to
// milliseconds.
func (p *Proxy) Delay(d, jitter time.Duration) error { return p.delay(Replies, d, jitter) }

// DelayRequests does so with every request.
func (p *Proxy) DelayRequests(d, jitter time.Duration) error { return p.delay(Requests, d, jitter) }

func (p *Proxy) delay(way Direction, d, jitter time.Duration) error {
	return p.harm("latency", map[string]any{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()}, way)
}

// Throttle lets about rate KB a second through in each direction.
func (p *Proxy) Throttle(rate int) error {
	if rate < 1 {
		return fmt.Errorf("fault: throttle to %d KB/s: at least 1", rate)
	}
	return p.harm("bandwidth", map[string]any{"rate": rate}, Requests, Replies)
}

// Dribble cuts what passes into pieces of size bytes with a gap between them,
// in both directions. A gap is a whole number of microseconds.
func (p *Proxy) Dribble(size int, gap time.Duration) error {
	if size < 1 {
		return fmt.Errorf("fault: dribble in pieces of %d bytes: at least 1", size)
	}
	return p.harm("slicer", map[string]any{"average_size": size, "delay": gap.Microseconds()}, Requests, Replies)
}

// Reset breaks a connection, by TCP reset, instead of passing a request or an
// answer on. The share of messages concerned goes from 0 to 1: all.
func (p *Proxy) Reset(share float64) error {
	if share < 0 || share > 1 {
		return fmt.Errorf("fault: reset a share of %v: not between 0 and 1", share)
	}
	// The chance is that of each direction, and a message has both before it.
	return p.harm(resetsKind, map[string]any{"share": share}, Requests, Replies)
}

const resetsKind = "lockbench-resets"

func init() { toxics.Register(resetsKind, new(resets)) }

// resets is a toxic that ends a connection at a share of what passes.
// Toxiproxy's own decides once for a connection, and ours live long.
type resets struct {
	Share float64 `json:"share"`
}

// Pipe implements toxics.Toxic.
func (r *resets) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil || rand.Float64() < r.Share {
				stub.Close()
				return
			}
			stub.Output <- chunk
		}
	}
}
