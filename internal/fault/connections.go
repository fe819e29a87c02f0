package fault

import "fmt"

// Cut resets all connections, once. Those that come now are passed on. It is no
// harm that has to be healed.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses() {
		return nil // there are none
	}
	err := p.listen(p.p.Upstream, false)
	if err == nil {
		err = p.listen(p.p.Upstream, true)
	}
	if err != nil {
		return fmt.Errorf("fault: cut the connections to %s: %w", p.p.Upstream, err)
	}
	return nil
}

// Refuse resets all connections and refuses those that come.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(p.p.Upstream, false); err != nil {
		return fmt.Errorf("fault: refuse connections to %s: %w", p.p.Upstream, err)
	}
	p.harms = append(p.harms, &impairment{refuses: true})
	return nil
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

// forget hides the ends of connections that go one way, and makes one go the
// other way.
func (p *Proxy) forget(hidden, ended Direction) error {
	err := p.harm(impairment{hidesEnds: true}, hidden)
	p.toxics[ended].endAll()
	return err
}
