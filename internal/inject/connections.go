package inject

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// conn is one end of a connection, which is forgotten when it is closed.
type conn struct {
	*net.TCPConn
	p *Proxy
}

// Close implements io.Closer.
func (c *conn) Close() error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.end()
}

// end is Close for one who holds the mutex of the proxy.
func (c *conn) end() error {
	delete(c.p.open, c)
	return c.TCPConn.Close()
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

// cut is Cut for one who holds mu.
func (p *Proxy) cut() {
	p.cuts++
	for c := range p.open {
		_ = c.end() // the other end may have
	}
}

// deafen ends to listen, with all connections. The caller holds mu.
func (p *Proxy) deafen() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cut()
}

// listen begins to. The port is nobody else's, but a process that is being started
// has the socket that was closed until it is a program of its own. The caller
// holds mu, unless nobody else knows the proxy.
func (p *Proxy) listen() (err error) {
	for end := time.Now().Add(signalTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.listener, err = net.Listen("tcp", p.Addr())
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		p.listener = nil
		return err
	}
	l := p.listener
	p.accept.Go(func() {
		for { // one after the other: toxics number them
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.connect(l, client.(*net.TCPConn))
		}
	})
	return nil
}

// connect leads a connection that came to l to the server whose turn it is, unless
// all are reset meanwhile.
func (p *Proxy) connect(l net.Listener, client *net.TCPConn) {
	p.mu.Lock()
	to, cuts, refused := p.leads[p.next%len(p.leads)], p.cuts, p.listener != l
	p.next++
	p.mu.Unlock()
	if refused {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", to, signalTime)
	if err != nil {
		_ = client.Close()
		return
	}
	ends := [2]*conn{{client, p}, {server.(*net.TCPConn), p}}
	p.mu.Lock()
	for _, c := range ends {
		_ = c.SetLinger(0) // its end is a reset
		p.open[c] = true
	}
	late := cuts != p.cuts
	p.mu.Unlock()
	if late {
		_, _ = ends[0].Close(), ends[1].Close()
		return
	}
	name := client.RemoteAddr().String()
	p.p.Toxics.StartLink(p.server, name+"upstream", ends[0], ends[1], stream.Upstream)
	p.p.Toxics.StartLink(p.server, name+"downstream", ends[1], ends[0], stream.Downstream)
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
	if n := p.toxics[Requests].opened(); n > 0 {
		return p.harm(impairment{holds: true, upTo: n}, Requests)
	}
	return nil
}

// Silence swallows everything on the connections that there are but the newest
// one, the ends among it, as a firewall that has forgotten those that were idle.
// New ones work.
func (p *Proxy) Silence() error {
	if n := p.toxics[Requests].opened() - 1; n > 0 {
		return p.harm(impairment{swallows: true, hidesEnds: true, upTo: n}, Requests, Replies)
	}
	return nil
}

// forget hides the ends of connections that go one way, and makes one go the
// other way.
func (p *Proxy) forget(hidden, ended Direction) error {
	err := p.harm(impairment{hidesEnds: true}, hidden)
	p.toxics[ended].endAll()
	return err
}
