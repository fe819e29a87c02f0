package inject

import "time"

// BlackHole swallows everything in both directions, the ends of connections
// among it. They stay open and new ones are accepted, and nobody is told: the
// server, or this client's machine, is cut off.
func (p *Proxy) BlackHole() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests, Replies)
}

// LoseReplies lets requests through and swallows the answers.
func (p *Proxy) LoseReplies() error { return p.harm(impairment{swallows: true}, Replies) }

// LoseRequests swallows the requests, and the ends of connections as well: the
// answer to what was sent before comes back.
func (p *Proxy) LoseRequests() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests)
}

// Delay holds every answer back for d, give or take jitter.
func (p *Proxy) Delay(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Replies)
}

// DelayRequests does so with every request.
func (p *Proxy) DelayRequests(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Requests)
}

// SlowStart holds the first piece of every connection in each direction back
// for d, that of the ones that are open as well.
func (p *Proxy) SlowStart(d time.Duration) error {
	return p.harm(impairment{first: d}, Requests, Replies)
}

// Throttle lets about rate KB a second through in each direction.
func (p *Proxy) Throttle(rate int) error {
	return p.harm(impairment{rate: rate}, Requests, Replies)
}

// Fragment cuts what passes into pieces of size bytes with a gap between them,
// in both directions.
func (p *Proxy) Fragment(size int, gap time.Duration) error {
	return p.harm(impairment{size: size, gap: gap}, Requests, Replies)
}

// Reset breaks a connection, by TCP reset, instead of passing a request or an
// answer on. The share of messages concerned goes from 0 to 1: all.
func (p *Proxy) Reset(share float64) error {
	// The chance is that of each direction, and a message has both before it.
	return p.harm(impairment{resets: share}, Requests, Replies)
}
