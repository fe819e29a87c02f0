package inject

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// impairment is one harm to the data that pass through the proxy. Several impairments add up.
type impairment struct {
	in []Direction

	seen          func(Direction) // called for each piece of data; does no harm
	upTo          int             // number of the last connection that is harmed; 0 for all
	only          []byte          // harms only pieces that contain this text; nil for all
	loses         bool            // drops pieces; later pieces pass
	swallows      bool            // drops data; healing then ends the connection
	holds         bool            // keeps data back until it is healed
	hidesEnds     bool            // hides that a side has closed a connection
	refuses       bool            // refuses new connections
	resets        float64         // the share of pieces that end a connection
	delay, jitter time.Duration
	first         time.Duration // delay of the first piece
	rate          int           // KB/s; 0 for no limit
	size          int           // largest piece in bytes; 0 for no limit
	gap           time.Duration // pause after each piece
}

const (
	// pieceSize is the largest number of bytes that are read at once.
	pieceSize = 32 << 10
	// maxWaiting is the largest number of pieces that may wait in one direction of a connection.
	maxWaiting = 1024
	// takeTime is the longest time for which a write may block because the receiver reads nothing.
	// After this time, the proxy ends the connection.
	takeTime = 30 * time.Second
)

// flow passes on the data of one connection in one direction.
type flow struct {
	p        *Proxy
	way      Direction
	number   int // of the connection
	from, to *net.TCPConn
	input    chan []byte // incoming data, closed at the end
	alarm    *alarm

	begun     bool // a piece has arrived
	swallowed bool
	closed    bool // the sender sends no more data
	over      bool // the flow is to end once no piece waits and no harm hides the end
	waiting   []waiting
	free      time.Time // when the next piece may pass
}

type waiting struct {
	data []byte
	due  time.Time
}

func (f *flow) run() {
	var err error
	if f.alarm, err = newAlarm(); err != nil { // no file descriptors are left
		_, _ = f.from.Close(), f.to.Close()
		return
	}
	f.input = make(chan []byte)
	go f.read()
	for {
		harms, changed, ended := f.now()
		f.look(harms, ended)
		if f.over && len(f.waiting) == 0 && !slices.ContainsFunc(harms, func(h *impairment) bool { return h.hidesEnds }) {
			break
		}
		held := slices.ContainsFunc(harms, func(h *impairment) bool { return h.holds })
		if !held && f.pass(harms) {
			continue
		}
		f.await(changed, held)
	}
	_ = f.to.Close() // the connection may have ended
	f.alarm.close()
	for range f.input {
	}
}

func (f *flow) read() {
	defer close(f.input)
	for {
		b := make([]byte, pieceSize)
		n, err := f.from.Read(b)
		if n > 0 {
			f.input <- b[:n]
		}
		if err != nil {
			return
		}
	}
}

// The now method returns the flow's harms, and a channel that is closed when these harms change.
// The result ended reports whether a harm has ended the connection in the flow's direction.
func (f *flow) now() (harms []*impairment, changed chan struct{}, ended bool) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	for _, h := range f.p.harms {
		if slices.Contains(h.in, f.way) && (h.upTo == 0 || f.number <= h.upTo) {
			harms = append(harms, h)
		}
	}
	return harms, f.p.changed, f.number <= f.p.ended[f.way]
}

// await waits until data arrive, the first waiting piece may pass, or harms change. It passes
// arriving data to the take method. If held is true, no piece may pass.
func (f *flow) await(changed chan struct{}, held bool) {
	var next <-chan struct{}
	if len(f.waiting) > 0 && !held {
		next = f.alarm.in(time.Until(f.next()))
	}
	input := f.input
	if f.closed || len(f.waiting) >= maxWaiting {
		input = nil
	}
	select {
	case data := <-input:
		f.take(data)
	case <-next:
	case <-changed:
	}
}

func (f *flow) next() time.Time {
	if due := f.waiting[0].due; due.After(f.free) {
		return due
	}
	return f.free
}

func (f *flow) look(harms []*impairment, ended bool) {
	swallows, late := false, f.p.distance() > 0
	for _, h := range harms {
		swallows = swallows || h.swallows
		late = late || h.delay > 0 || h.first > 0
	}
	if swallows && len(f.waiting) > 0 {
		f.swallowed, f.waiting = true, nil
	}
	if f.swallowed && !swallows || ended {
		f.end() // the connection cannot go on without the swallowed data
	}
	if !late {
		for i := range f.waiting {
			f.waiting[i].due = time.Time{}
		}
	}
}

func (f *flow) end() { f.over, f.waiting = true, nil }

// The take method handles a piece of incoming data. If data is nil, the sender sends no more.
func (f *flow) take(data []byte) {
	if data == nil {
		f.closed, f.over = true, true
		return
	}
	harms, _, _ := f.now()
	for _, h := range harms {
		if h.seen != nil {
			h.seen(f.way)
		}
	}
	if f.over {
		return
	}
	harms, _, _ = f.now()
	late := f.p.distance()
	for _, h := range harms {
		switch {
		case !bytes.Contains(data, h.only):
			continue
		case h.loses:
			return
		case rand.Float64() < h.resets:
			f.end()
			return
		}
		f.swallowed = f.swallowed || h.swallows
		late += h.delay
		if h.jitter > 0 {
			late += rand.N(2*h.jitter) - h.jitter
		}
		if !f.begun {
			late += h.first
		}
	}
	f.begun = true
	if !f.swallowed {
		f.waiting = append(f.waiting, waiting{data, time.Now().Add(late)})
	}
}

// pass sends the first waiting piece, or a part of it. It returns false if no piece may pass yet.
func (f *flow) pass(harms []*impairment) bool {
	if len(f.waiting) == 0 || time.Now().Before(f.next()) {
		return false
	}
	first := &f.waiting[0]
	size, pause := len(first.data), time.Duration(0)
	for _, h := range harms {
		if h.size > 0 {
			size = min(size, h.size)
			pause += h.gap
		}
		if h.rate > 0 {
			size = min(size, h.rate*100) // at most the data of a tenth of a second
		}
	}
	for _, h := range harms {
		if h.rate > 0 {
			pause += time.Duration(size) * time.Millisecond / time.Duration(h.rate)
		}
	}
	piece := first.data[:size]
	if first.data = first.data[size:]; len(first.data) == 0 {
		f.waiting = f.waiting[1:]
	}
	_ = f.to.SetWriteDeadline(time.Now().Add(takeTime)) // Write reports a connection that has ended
	if _, err := f.to.Write(piece); err != nil {
		f.end()
	}
	f.free = time.Now().Add(pause)
	return true
}

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
