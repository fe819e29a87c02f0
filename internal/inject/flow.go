package inject

import (
	"bytes"
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
