package inject

import (
	"errors"
	"time"
)

// BlackHole drops all data in both directions and hides from each side that the other side closes
// its connection. Connections stay open and new connections are accepted, so neither side notices.
// The same happens if a network cuts off the server or the client's machine.
func (p *Proxy) BlackHole() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests, Replies)
}

// LoseReplies lets requests through and drops the replies.
func (p *Proxy) LoseReplies() error { return p.harm(impairment{swallows: true}, Replies) }

// LoseRequests drops the requests and hides from the server that clients close their connections.
// Replies to earlier requests still pass.
func (p *Proxy) LoseRequests() error {
	return p.harm(impairment{swallows: true, hidesEnds: true}, Requests)
}

// Delay delays every reply by d, plus or minus a random time of at most jitter.
func (p *Proxy) Delay(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Replies)
}

// DelayPushes delays by d the messages that contain [Proxy.Push], which the server sends
// without a request. Data after such a message on the same connection wait, too.
// If d is 0, DelayPushes drops these messages instead. Other replies and all requests pass.
func (p *Proxy) DelayPushes(d time.Duration) error {
	return p.harm(impairment{only: []byte(p.Push), loses: d == 0, delay: d}, Replies)
}

// DelayRequests delays every request by d, plus or minus a random time of at most jitter.
func (p *Proxy) DelayRequests(d, jitter time.Duration) error {
	return p.harm(impairment{delay: d, jitter: jitter}, Requests)
}

// SlowStart delays the first data of every connection by d, in each direction. Connections that are
// open but have sent nothing yet are delayed, too.
func (p *Proxy) SlowStart(d time.Duration) error {
	return p.harm(impairment{first: d}, Requests, Replies)
}

// Throttle limits each direction of each connection to about rate KB a second.
func (p *Proxy) Throttle(rate int) error {
	return p.harm(impairment{rate: rate}, Requests, Replies)
}

// Fragment cuts the data in both directions into pieces of
// size bytes, and pauses for the time gap after each piece.
func (p *Proxy) Fragment(size int, gap time.Duration) error {
	return p.harm(impairment{size: size, gap: gap}, Requests, Replies)
}

// Reset resets a connection (TCP RST) instead of passing on a request or a reply. The parameter
// share, from 0 to 1, is the probability of a reset for each request and reply.
func (p *Proxy) Reset(share float64) error {
	return p.harm(impairment{resets: share}, Requests, Replies)
}

// ForgetClients ends the clients' side of every connection. Until the proxy is healed, it hides
// from the server that these connections have ended, and that clients close other connections. The
// same happens if a firewall between clients and server loses its table of connections.
func (p *Proxy) ForgetClients() error { return p.forget(Requests, Replies) }

// ForgetServer ends the server's side of each connection, and hides this end from the clients. Data
// that a client then sends on such a connection are lost. New connections work.
func (p *Proxy) ForgetServer() error { return p.forget(Replies, Requests) }

// HoldConnections keeps back the data that clients send on connections that are open now. After
// healing the data reach the server, even if the client closed the connection long before.
// New connections work. The same happens if only one of several network paths is stuck.
func (p *Proxy) HoldConnections() error {
	if n := p.count(); n > 0 {
		return p.harm(impairment{holds: true, upTo: n}, Requests)
	}
	return nil
}

// Silence drops all data on the connections that are open now, except on the newest.
// If a side closes such a connection, the other side does not learn of it. New connections work.
// The same happens if a firewall has forgotten idle connections.
func (p *Proxy) Silence() error {
	if n := p.count() - 1; n > 0 {
		return p.harm(impairment{swallows: true, hidesEnds: true, upTo: n}, Requests, Replies)
	}
	return nil
}

// forget ends all connections in one direction, which is the parameter ended. In the direction in
// hidden, it hides from the receiver that the sender has closed a connection.
func (p *Proxy) forget(hidden, ended Direction) error {
	err := p.harm(impairment{hidesEnds: true}, hidden)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[ended] = p.opened
	p.tell()
	return err
}

func (p *Proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Leading is a method that gives a proxy other servers: [Proxy.Lead] or [Proxy.Retarget].
type Leading func(p *Proxy, to ...string) error

// Lead passes new connections to the servers at the given addresses, in turn, like a load balancer
// or a host name with new addresses. Open connections keep their servers.
func (p *Proxy) Lead(to ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads, p.next = to, 0
	return nil
}

// Retarget does what Lead does, and also resets all open connections.
func (p *Proxy) Retarget(to ...string) error { return errors.Join(p.Lead(to...), p.Cut()) }

// Cut resets all open connections once. New connections work, so there is nothing to heal.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	return nil
}

// Refuse resets all open connections and refuses new ones until the proxy is healed.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deafen()
	p.harms = append(p.harms, &impairment{refuses: true})
	return nil
}
