package inject

import (
	"errors"
	"time"
)

// BlackHole swallows everything in both directions, including the ends of
// connections. Connections stay open, new ones are accepted, and neither side learns
// of it, as when the server or this client's machine is cut off.
func (p *Proxy) BlackHole() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests, Replies)
}

// LoseReplies lets requests through and swallows the replies.
func (p *Proxy) LoseReplies() error { return p.harm(impairment{swallows: true}, Replies) }

// LoseRequests swallows the requests, and the ends of connections as well. Replies to
// earlier requests still come back.
func (p *Proxy) LoseRequests() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests)
}

// Delay holds every reply back for d, give or take jitter.
func (p *Proxy) Delay(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Replies)
}

// DelayPushes holds unasked messages of a server back for d, with the later data on
// the same connection. With 0 it loses the messages, and the connection goes on. It
// recognizes them by [Proxy.Push]. Requests and replies pass.
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
	// Each direction has this chance, and a message passes both.
	return p.harm(impairment{resets: share}, Requests, Replies)
}

// ForgetClients ends every connection for the client, and the server is not told
// that it has one less, nor of later ends, until it is healed: a machine that
// has lost its state of the connections stands in between.
func (p *Proxy) ForgetClients() error { return p.forget(Requests, Replies) }

// ForgetServer ends every connection for the server, and the client is not told. Data
// that it sends on such a connection are lost. New connections work.
func (p *Proxy) ForgetServer() error { return p.forget(Replies, Requests) }

// HoldConnections holds the data that clients send over present connections. After
// healing the data reach the server, even if the client has ended the connection long
// ago. New connections work, as when one flow of several is stuck.
func (p *Proxy) HoldConnections() error {
	if n := p.count(); n > 0 {
		return p.harm(impairment{holds: true, upTo: n}, Requests)
	}
	return nil
}

// Silence swallows everything on the present connections but the newest, including
// their ends, like a firewall that has forgotten idle connections. New connections
// work.
func (p *Proxy) Silence() error {
	if n := p.count() - 1; n > 0 {
		return p.harm(impairment{swallows: true, hidesEnds: true, upTo: n}, Requests, Replies)
	}
	return nil
}

// forget hides the ends of connections in one direction, and sends an end in the
// other direction.
func (p *Proxy) forget(hidden, ended Direction) error {
	err := p.harm(impairment{hidesEnds: true}, hidden)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[ended] = p.opened
	p.tell()
	return err
}

// count is how many connections there have been.
func (p *Proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Leading is [Proxy.Lead] or [Proxy.Retarget].
type Leading func(p *Proxy, to ...string) error

// Lead passes new connections to these servers, to each in turn, as a changed name or
// a balancer does. Present connections stay where they are.
func (p *Proxy) Lead(to ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads, p.next = to, 0
	return nil
}

// Retarget is Lead, and resets all connections.
func (p *Proxy) Retarget(to ...string) error { return errors.Join(p.Lead(to...), p.Cut()) }

// Cut resets all connections, once. New connections are passed on. Cut needs no
// healing.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	return nil
}

// Refuse resets all connections and refuses new ones.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deafen()
	p.harms = append(p.harms, &impairment{refuses: true})
	return nil
}
