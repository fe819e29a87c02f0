// Package inject breaks connections and sets the clocks of servers wrong, as networks and operators
// do. It can end these faults. It does not depend on the kind of server. Package proc has the
// functions that freeze and kill processes.
package inject

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/ports"
)

// Proxy stands in front of a server. Its methods harm the data that pass through it. Harms apply to
// open and to later connections, and add up until [Proxy.Heal]. Any goroutine may call the methods.
type Proxy struct {
	// Push is a text that occurs only in messages that the server sends without a
	// request, or "" if no such text is known. It must be set before the proxy is used.
	Push string

	port *ports.Taken
	busy sync.WaitGroup // the goroutines that accept and pass on connections

	apart   sync.Mutex // held while Apart calls its function
	mu      sync.Mutex
	harms   []*impairment // harms and observers
	changed chan struct{} // closed and replaced when the field harms, ended or far changes
	// leads are the addresses of the servers that get new connections in turn. next is the number of
	// connections that these servers have got so far.
	leads    []string
	next     int
	listener net.Listener // nil while connections are refused
	open     map[*link]bool
	opened   int               // number of connections so far
	far      time.Duration     // delay of all data in each direction; Heal keeps it, because it is no harm
	ended    map[Direction]int // number of the last connection that was ended in a direction
	cuts     int               // number of times that all connections were reset
}

type link struct {
	number         int // counted from 1
	client, server *net.TCPConn
}

// reset ends a connection by a TCP reset.
func (l *link) reset() { _, _ = l.client.Close(), l.server.Close() } // either may have ended

// NewProxy listens on a free port of the loopback interface and passes
// connections on to the server at the address upstream, a host:port.
func NewProxy(upstream string) (*Proxy, error) {
	port, err := ports.Take(1) // keeps the port while the proxy does not listen
	if err != nil {
		return nil, fmt.Errorf("inject: proxy of %s: %w", upstream, err)
	}
	p := &Proxy{port: port, leads: []string{upstream}, open: map[*link]bool{}, ended: map[Direction]int{}, changed: make(chan struct{})}
	if err := p.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("inject: proxy of %s: %w", upstream, err), port.Close())
	}
	return p, nil
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.port.Addr(0) }

// settle is the longest time for which the listen method retries while the port is in use. It is
// the time limit for connecting to a server, too.
const settle = 2 * time.Second

// listen opens the listening socket. It tries again while the port is in use, because a child
// process that is being started holds the old socket until the child executes its program. The
// caller holds mu, or no other goroutine has the proxy yet.
func (p *Proxy) listen() (err error) {
	for end := time.Now().Add(settle); time.Now().Before(end); time.Sleep(time.Millisecond) {
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
	p.busy.Go(func() {
		for { // one by one, so that connections are numbered in the order of arrival
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.connect(l, client.(*net.TCPConn))
		}
	})
	return nil
}

// deafen stops listening and ends all connections. The caller holds mu.
func (p *Proxy) deafen() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cut()
}

// cut resets all open connections. The caller holds mu.
func (p *Proxy) cut() {
	p.cuts++
	for l := range p.open {
		l.reset()
	}
}

// connect connects a client, which the listener l has accepted, to the next server in turn. If the
// proxy resets all connections before the server accepts, connect closes the client's connection.
func (p *Proxy) connect(l net.Listener, client *net.TCPConn) {
	p.mu.Lock()
	to, cuts, refused := p.leads[p.next%len(p.leads)], p.cuts, p.listener != l
	p.next++
	p.mu.Unlock()
	if refused {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", to, settle)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &link{client: client, server: server.(*net.TCPConn)}
	_, _ = c.client.SetLinger(0), c.server.SetLinger(0) // Close then sends a reset
	p.mu.Lock()
	defer p.mu.Unlock()
	if cuts != p.cuts {
		c.reset()
		return
	}
	p.opened++
	c.number, p.open[c] = p.opened, true
	p.busy.Go(func() {
		var ways sync.WaitGroup
		ways.Go((&flow{p: p, way: Requests, number: c.number, from: c.client, to: c.server}).run)
		ways.Go((&flow{p: p, way: Replies, number: c.number, from: c.server, to: c.client}).run)
		ways.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	})
}

// Direction is a direction in which data pass through a proxy.
type Direction string

const (
	Requests Direction = "requests" // to the server
	Replies  Direction = "replies"  // to the client
)

func (p *Proxy) harm(h impairment, in ...Direction) error {
	h.in = in
	p.begin(h)
	return nil
}

func (p *Proxy) begin(h impairment) *impairment {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harms = append(p.harms, &h)
	p.tell()
	return &h
}

// tell makes every connection read the list of harms again. The caller holds mu.
func (p *Proxy) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Apart calls the function do, which begins harms by calls of the proxy's methods. The returned
// function heal ends only these harms. While Apart runs, other goroutines may begin harms only
// through Apart. Calls of Apart wait for each other.
func (p *Proxy) Apart(do func(*Proxy) error) (heal func() error, err error) {
	p.apart.Lock()
	defer p.apart.Unlock()
	p.mu.Lock()
	before := len(p.harms)
	p.mu.Unlock()
	err = do(p)
	p.mu.Lock()
	done := slices.Clone(p.harms[before:])
	p.mu.Unlock()
	return func() error {
		return p.heal(func(h *impairment) bool { return h.seen == nil && slices.Contains(done, h) })
	}, err
}

// Heal ends all harms. It also ends each connection that has lost data (except by DelayPushes),
// because such a connection cannot go on. Other connections go on.
func (p *Proxy) Heal() error { return p.heal(func(h *impairment) bool { return h.seen == nil }) }

func (p *Proxy) heal(which func(*impairment) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	refused := p.refuses()
	p.harms = slices.DeleteFunc(p.harms, which)
	p.tell()
	if refused && !p.refuses() {
		if err := p.listen(); err != nil {
			return fmt.Errorf("inject: heal %s: %w", p.Addr(), err)
		}
	}
	return nil
}

// refuses reports whether a harm refuses connections. The caller holds mu.
func (p *Proxy) refuses() bool {
	return slices.ContainsFunc(p.harms, func(h *impairment) bool { return h.refuses })
}

// Observe calls the function seen for each piece of data that arrives at the proxy. The proxy
// passes the piece on only after seen has returned. So if seen begins a harm, the harm applies to
// this piece. Each direction of each connection has a goroutine that calls seen, so calls may be
// concurrent. After the returned function end is called, no call of seen begins, but end does not
// wait for calls in progress. end may be called at any time and more than once.
func (p *Proxy) Observe(seen func(Direction)) (end func()) {
	h := p.begin(impairment{seen: seen, in: []Direction{Requests, Replies}})
	return func() { _ = p.heal(func(one *impairment) bool { return one == h }) } // only harms that refuse connections can fail to heal
}

// Close heals the proxy, resets all connections and stops listening.
func (p *Proxy) Close() error {
	err := p.Heal()
	p.mu.Lock()
	p.deafen()
	p.mu.Unlock()
	p.busy.Wait()
	return errors.Join(err, p.port.Close())
}

// SetDistance delays all data by half of rtt in each direction, as if the
// server were far away. Heal does not end this delay; only SetDistance(0) does.
func (p *Proxy) SetDistance(rtt time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.far = rtt / 2
	p.tell()
}

func (p *Proxy) distance() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.far
}
