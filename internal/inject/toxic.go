package inject

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// impairment is what is done to what passes. Several at the same time add up.
type impairment struct {
	in []Direction

	seen          func(Direction) // it observes, and does no harm
	upTo          int             // the number of the last connection that it concerns; 0 for all
	swallows      bool            // data
	holds         bool            // data, until it is healed
	hidesEnds     bool            // of connections
	refuses       bool            // connections
	resets        float64         // the share of pieces that end a connection
	delay, jitter time.Duration
	first         time.Duration // delay of the first piece
	rate          int           // KB/s; 0 for any
	size          int           // of pieces, in bytes; 0 for any
	gap           time.Duration // after each of them
}

const toxicKind = "lockbench-impairment"

func init() { toxics.Register(toxicKind, new(toxic)) }

// toxic is the toxic that does all harm in one direction of all connections.
type toxic struct {
	direction Direction
	opposite  *toxic

	mu      sync.Mutex
	harms   []*impairment // never changed in place
	changed chan struct{} // closed and replaced with harms and ended
	ended   int           // how often all connections were ended
	last    birth
}

// birth is when a connection was opened.
type birth struct {
	number int // of the connection, from 1 on
	ended  int // how often all connections had been ended before
}

// replace changes what is done.
func (w *toxic) replace(harms []*impairment) { w.change(func() { w.harms = harms }) }

// endAll ends the connections that there are.
func (w *toxic) endAll() { w.change(func() { w.ended++ }) }

func (w *toxic) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	if w.changed != nil {
		close(w.changed)
	}
	w.changed = make(chan struct{})
}

func (w *toxic) now() (harms []*impairment, changed chan struct{}, ended int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.harms, w.changed, w.ended
}

// NewState implements toxics.StatefulToxic. It returns the birth of the
// connection. toxiproxy opens them one after the other, each first for
// requests, and these may pass before it has begun the other direction: so
// both note it then.
func (w *toxic) NewState() any {
	if w.direction == Requests {
		w.open()
		w.opposite.open()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *toxic) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = birth{w.last.number + 1, w.ended}
}

// opened is the number of the last connection.
func (w *toxic) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.number
}

// Pipe implements toxics.Toxic.
func (w *toxic) Pipe(stub *toxics.ToxicStub) {
	p := &transfer{toxic: w, stub: stub, born: stub.State.(birth)}
	p.run()
	for !p.closed { // toxiproxy would wait for ever for somebody who reads
		p.closed = <-stub.Input == nil
	}
}

const (
	// maxWaiting is how many pieces wait in one direction of a connection.
	maxWaiting = 1024
	// takeTime is how long whoever is to take a piece may not do so, until the
	// connection is ended: toxiproxy does not report that its other end is gone.
	takeTime = 30 * time.Second
)

// transfer is one direction of one connection.
type transfer struct {
	toxic *toxic
	stub  *toxics.ToxicStub
	born  birth

	begun     bool // something has come
	swallowed bool
	closed    bool // nothing comes any more
	over      bool // it is to end, as soon as that may be seen
	waiting   []waiting
	free      time.Time // when the next piece may pass
}

// waiting is a piece that passes when it is due.
type waiting struct {
	chunk *stream.StreamChunk
	due   time.Time
}

// run passes on what comes until the connection ends.
func (p *transfer) run() {
	for {
		harms, changed, ended := p.now()
		p.look(harms, ended)
		if p.over && len(p.waiting) == 0 && !hidesEnds(harms) {
			p.stub.Close()
			return
		}
		held := slices.ContainsFunc(harms, func(h *impairment) bool { return h.holds })
		if !held && p.pass(harms) {
			continue
		}
		p.await(changed, held)
	}
}

// now is the toxic's, of the harms that concern the connection.
func (p *transfer) now() (harms []*impairment, changed chan struct{}, ended int) {
	all, changed, ended := p.toxic.now()
	for _, h := range all {
		if h.upTo == 0 || p.born.number <= h.upTo {
			harms = append(harms, h)
		}
	}
	return harms, changed, ended
}

// await takes what comes, or returns when a piece may pass, unless they are
// held, or the harms change.
func (p *transfer) await(changed chan struct{}, held bool) {
	var next <-chan time.Time
	if len(p.waiting) > 0 && !held {
		next = time.After(time.Until(p.next()))
	}
	input := p.stub.Input
	if p.closed || len(p.waiting) >= maxWaiting {
		input = nil
	}
	select {
	case chunk := <-input:
		p.take(chunk)
	case <-next:
	case <-changed:
	}
}

// next is when the first piece that waits may pass.
func (p *transfer) next() time.Time {
	if due := p.waiting[0].due; due.After(p.free) {
		return due
	}
	return p.free
}

// look sees what a change of the harms means for what is there.
func (p *transfer) look(harms []*impairment, ended int) {
	swallows, late := false, false
	for _, h := range harms {
		swallows = swallows || h.swallows
		late = late || h.delay > 0 || h.first > 0
	}
	if swallows && len(p.waiting) > 0 {
		p.swallowed, p.waiting = true, nil
	}
	if p.swallowed && !swallows || ended > p.born.ended {
		p.end() // what was swallowed is missing for good
	}
	if !late {
		for i := range p.waiting {
			p.waiting[i].due = time.Time{}
		}
	}
}

// end ends the connection without what waits.
func (p *transfer) end() { p.over, p.waiting = true, nil }

// take takes a piece that came, nil for the end.
func (p *transfer) take(chunk *stream.StreamChunk) {
	if chunk == nil {
		p.closed, p.over = true, true
		return
	}
	harms, _, _ := p.now()
	for _, h := range harms {
		if h.seen != nil {
			h.seen(p.toxic.direction)
		}
	}
	if p.over {
		return
	}
	harms, _, _ = p.now()
	var late time.Duration
	for _, h := range harms {
		if rand.Float64() < h.resets {
			p.end()
			return
		}
		p.swallowed = p.swallowed || h.swallows
		late += h.delay
		if h.jitter > 0 {
			late += rand.N(2*h.jitter) - h.jitter
		}
		if !p.begun {
			late += h.first
		}
	}
	p.begun = true
	if !p.swallowed {
		p.waiting = append(p.waiting, waiting{chunk, time.Now().Add(late)})
	}
}

// pass passes on the first piece that waits, or some of it, when its time has
// come.
func (p *transfer) pass(harms []*impairment) bool {
	if len(p.waiting) == 0 || time.Now().Before(p.next()) {
		return false
	}
	first := p.waiting[0].chunk
	size, pause := len(first.Data), time.Duration(0)
	for _, h := range harms {
		if h.size > 0 {
			size = min(size, h.size)
			pause += h.gap
		}
		if h.rate > 0 {
			size = min(size, h.rate*100) // of a tenth of a second
		}
	}
	for _, h := range harms {
		if h.rate > 0 {
			pause += time.Duration(size) * time.Millisecond / time.Duration(h.rate)
		}
	}
	piece := &stream.StreamChunk{Data: first.Data[:size], Timestamp: first.Timestamp}
	if first.Data = first.Data[size:]; len(first.Data) == 0 {
		p.waiting = p.waiting[1:]
	}
	select {
	case p.stub.Output <- piece:
		p.free = time.Now().Add(pause)
	case <-time.After(takeTime):
		p.end()
	}
	return true
}

func hidesEnds(harms []*impairment) bool {
	for _, h := range harms {
		if h.hidesEnds {
			return true
		}
	}
	return false
}
