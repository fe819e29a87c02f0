package fault

import (
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Cut resets all connections, once. Those that come now are passed on. It is no
// harm that has to be healed.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing > 0 {
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
	p.refusing++
	p.harms = append(p.harms, &harm{func() error {
		if p.refusing--; p.refusing > 0 {
			return nil
		}
		return p.p.Update(&toxiproxy.Proxy{Listen: p.Addr(), Upstream: p.p.Upstream, Enabled: true})
	}})
	return nil
}

// ForgetClients ends every connection for the client, and the server is not told
// that it has one less, nor of later ends, until it is healed: a machine that
// has lost its state of the connections stands in between.
func (p *Proxy) ForgetClients() error { return p.forget(Requests, Replies) }

// ForgetServer ends every connection for the server, and the client is not told:
// what it sends on that connection is lost. New connections work.
func (p *Proxy) ForgetServer() error { return p.forget(Replies, Requests) }

// forget hides the ends of connections that come one way, and makes one come.
func (p *Proxy) forget(hidden, ended Direction) error {
	if err := p.harm(holeKind, map[string]any{"ends_only": true}, hidden); err != nil {
		return err
	}
	heal, err := p.Apart(func(p *Proxy) error { return p.harm(endKind, nil, ended) })
	if err != nil {
		return err
	}
	return heal()
}

const endKind = "lockbench-end"

func init() { toxics.Register(endKind, new(end)) }

// end is a toxic that ends the connections that there are.
type end struct{}

// Pipe implements toxics.Toxic.
func (*end) Pipe(stub *toxics.ToxicStub) { stub.Close() }

// SlowStart holds the first piece of every connection in each direction back
// for d, that of the ones that are open as well.
func (p *Proxy) SlowStart(d time.Duration) error {
	return p.harm(slowStartKind, map[string]any{"first": d.Milliseconds()}, Requests, Replies)
}

const slowStartKind = "lockbench-slow-start"

func init() { toxics.Register(slowStartKind, new(slowStart)) }

type slowStart struct {
	First int64 `json:"first"` // in milliseconds
}

// begun is the state of one connection.
type begun struct{ yes bool }

// NewState implements toxics.StatefulToxic.
func (*slowStart) NewState() any { return new(begun) }

// Pipe implements toxics.Toxic.
func (s *slowStart) Pipe(stub *toxics.ToxicStub) {
	started := stub.State.(*begun)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			healed := false
			if !started.yes {
				select {
				case <-stub.Interrupt:
					healed = true
				case <-time.After(time.Duration(s.First) * time.Millisecond):
				}
				started.yes = true
			}
			stub.Output <- chunk
			if healed {
				return
			}
		}
	}
}
