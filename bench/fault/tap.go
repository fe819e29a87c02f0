package fault

import (
	"slices"
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Tap calls seen for each piece of data that comes to the proxy, before any harm
// that is done to it. The piece is passed on when seen returns: what is done to
// the proxy until then befalls that piece already. Calls come from the goroutine
// of each connection and direction, at the same time. After end, which may be
// called at any time and more than once, none begins; a call under way is not
// waited for.
func (p *Proxy) Tap(seen func(Direction)) (end func()) {
	t := &tapping{seen}
	p.taps.change(func(all []*tapping) []*tapping { return append(all, t) })
	return func() {
		p.taps.change(func(all []*tapping) []*tapping {
			return slices.DeleteFunc(all, func(one *tapping) bool { return one == t })
		})
	}
}

// tapping is one call of Tap.
type tapping struct{ seen func(Direction) }

// taps are those of one proxy.
type taps struct {
	mu  sync.Mutex
	all []*tapping // never changed in place
}

func (t *taps) change(do func([]*tapping) []*tapping) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = do(slices.Clone(t.all))
}

func (t *taps) call(way Direction) {
	t.mu.Lock()
	all := t.all
	t.mu.Unlock()
	for _, one := range all {
		one.seen(way)
	}
}

const tapKind = "lockbench-tap"

func init() { toxics.Register(tapKind, new(tap)) }

// tap is a toxic that is always there, first of all: one that comes and goes
// would miss what passes in between.
type tap struct {
	taps *taps
	way  Direction
}

// Pipe implements toxics.Toxic.
func (t *tap) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			t.taps.call(t.way)
			stub.Output <- chunk
		}
	}
}
