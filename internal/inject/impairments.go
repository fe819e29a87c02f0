package inject

import (
	"errors"
	"time"
)

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

// DelayPushes holds what a server sends without having been asked back for d, and
// what follows on the same connection; 0 loses it, and the connection goes on.
// What it is is known by the [Proxy.Push] of the store. Requests and answers pass.
func (p *Proxy) DelayPushes(d time.Duration) error {
	return p.harm(impairment{only: []byte(p.Push), loses: d == 0, delay: d}, Replies)
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

// ForgetClients ends every connection for the client, and the server is not told
// that it has one less, nor of later ends, until it is healed: a machine that
// has lost its state of the connections stands in between.
func (p *Proxy) ForgetClients() error { return p.forget(Requests, Replies) }

// ForgetServer ends every connection for the server, and the client is not told:
// what it sends on that connection is lost. New connections work.
func (p *Proxy) ForgetServer() error { return p.forget(Replies, Requests) }

// HoldConnections holds what clients send over the connections that there are,
// until it is healed: then it reaches the server, also when the client has
// ended the connection long ago. New ones work. One flow of several is stuck.
func (p *Proxy) HoldConnections() error {
	if n := p.count(); n > 0 {
		return p.harm(impairment{holds: true, upTo: n}, Requests)
	}
	return nil
}

// Silence swallows everything on the connections that there are but the newest
// one, the ends among it, as a firewall that has forgotten those that were idle.
// New ones work.
func (p *Proxy) Silence() error {
	if n := p.count() - 1; n > 0 {
		return p.harm(impairment{swallows: true, hidesEnds: true, upTo: n}, Requests, Replies)
	}
	return nil
}

// forget hides the ends of connections that go one way, and makes one go the
// other way.
func (p *Proxy) forget(hidden, ended Direction) error {
	err := p.harm(impairment{hidesEnds: true}, hidden)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[ended] = p.opened
	p.tell()
	return err
}

// count is how many connections there were.
func (p *Proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Leading is [Proxy.Lead] or [Proxy.Retarget].
type Leading func(p *Proxy, to ...string) error

// Lead passes the connections that come from now on to these servers, to each in
// turn, as a name does that leads to another server, or a balancer. Those that
// there are stay where they are.
func (p *Proxy) Lead(to ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads, p.next = to, 0
	return nil
}

// Retarget is Lead, and resets all connections.
func (p *Proxy) Retarget(to ...string) error { return errors.Join(p.Lead(to...), p.Cut()) }

// Cut resets all connections, once. Those that come now are passed on. It is no
// harm that has to be healed.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	return nil
}

// Refuse resets all connections and refuses those that come.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deafen()
	p.harms = append(p.harms, &impairment{refuses: true})
	return nil
}
