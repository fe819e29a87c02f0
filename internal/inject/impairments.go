package inject

import (
	"errors"
	"time"
)

// BlackHole swallows everything in both directions, including the ends of
// connections. Connections stay open, new connections are accepted, and neither side
// notices, as when the server or this client's machine is cut off.
func (p *Proxy) BlackHole() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests, Replies)
}

// LoseReplies lets requests through and swallows the replies.
func (p *Proxy) LoseReplies() error { return p.harm(impairment{swallows: true}, Replies) }

// LoseRequests swallows the requests, and does not tell the server when clients end
// connections. Replies to earlier requests still come back.
func (p *Proxy) LoseRequests() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests)
}

// Delay holds every reply back for d, give or take jitter.
func (p *Proxy) Delay(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Replies)
}

// DelayPushes delays by d the messages that the server sends unasked, which contain
// [Proxy.Push], and the data after them on the same connection. If d is 0, it drops the
// messages instead, and the connection goes on. Requests and replies pass.
func (p *Proxy) DelayPushes(d time.Duration) error {
	return p.harm(impairment{only: []byte(p.Push), loses: d == 0, delay: d}, Replies)
}

// DelayRequests holds every request back for d, give or take jitter.
func (p *Proxy) DelayRequests(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Requests)
}

// SlowStart holds the first piece of every connection in each direction back for d,
// also on connections that are already open.
func (p *Proxy) SlowStart(d time.Duration) error {
	return p.harm(impairment{first: d}, Requests, Replies)
}

// Throttle lets about rate KB a second through in each direction.
func (p *Proxy) Throttle(rate int) error {
	return p.harm(impairment{rate: rate}, Requests, Replies)
}

// Fragment cuts passing data into pieces of size bytes with a gap between them, in
// both directions.
func (p *Proxy) Fragment(size int, gap time.Duration) error {
	return p.harm(impairment{size: size, gap: gap}, Requests, Replies)
}

// Reset breaks a connection, by TCP reset, instead of passing a request or a reply
// on. share, from 0 to 1, is the share of messages concerned.
func (p *Proxy) Reset(share float64) error {
	// Requests and replies each have this chance of a reset.
	return p.harm(impairment{resets: share}, Requests, Replies)
}

// ForgetClients ends every connection on the client's side. Until the proxy is healed, the
// server does not learn of these ends, nor of connections that clients end later, as when
// a machine in between has lost its table of connections.
func (p *Proxy) ForgetClients() error { return p.forget(Requests, Replies) }

// ForgetServer ends every connection on the server's side, and the client does not learn of
// that. Data that the client sends on an ended connection are lost. New connections work.
func (p *Proxy) ForgetServer() error { return p.forget(Replies, Requests) }

// HoldConnections holds the data that clients send over present connections. After
// healing the data reach the server, even if the client has ended the connection long
// before. New connections work, as when only one of several network paths is stuck.
func (p *Proxy) HoldConnections() error {
	if n := p.count(); n > 0 {
		return p.harm(impairment{holds: true, upTo: n}, Requests)
	}
	return nil
}

// Silence swallows everything on the present connections, except on the newest. It also
// hides the ends of these connections, like a firewall that has forgotten idle
// connections. New connections work.
func (p *Proxy) Silence() error {
	if n := p.count() - 1; n > 0 {
		return p.harm(impairment{swallows: true, hidesEnds: true, upTo: n}, Requests, Replies)
	}
	return nil
}

// forget hides the ends of connections in the direction hidden, and ends all
// connections in the direction ended.
func (p *Proxy) forget(hidden, ended Direction) error {
	err := p.harm(impairment{hidesEnds: true}, hidden)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[ended] = p.opened
	p.tell()
	return err
}

// count returns how many connections there have been so far.
func (p *Proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Leading is a function that leads a proxy to servers: [Proxy.Lead] or [Proxy.Retarget].
type Leading func(p *Proxy, to ...string) error

// Lead passes new connections to the given servers in turn, as a balancer does, or a
// host name with changed addresses. Open connections keep their servers.
func (p *Proxy) Lead(to ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads, p.next = to, 0
	return nil
}

// Retarget does what Lead does, and resets all connections.
func (p *Proxy) Retarget(to ...string) error { return errors.Join(p.Lead(to...), p.Cut()) }

// Cut resets all connections once. New connections are passed on, and nothing
// needs healing.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	return nil
}

// Refuse resets all connections and refuses new connections.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deafen()
	p.harms = append(p.harms, &impairment{refuses: true})
	return nil
}
