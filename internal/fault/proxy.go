package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
	"github.com/rs/zerolog/log"

	"github.com/lockbench/lockbench/internal/ports"
)

// Proxy stands in front of one server and harms what passes through it, on
// the connections that are open as well as on later ones. Harms add up until
// [Proxy.Heal]. Its methods may be called from any goroutine.
type Proxy struct {
	p      *toxiproxy.Proxy
	port   *ports.Taken
	toxics map[Direction]*toxic

	apart sync.Mutex // held while one harms it apart from others
	mu    sync.Mutex
	harms []*impairment // and who observes
}

// Some toxics write to the global logger.
func init() { log.Logger = zerolog.Nop() }

// NewProxy listens on a free port of the loopback interface and passes
// connections on to the server at upstream, a host:port.
func NewProxy(upstream string) (*Proxy, error) {
	// Retarget stops listening for a moment.
	port, err := ports.Take(1)
	if err != nil {
		return nil, fmt.Errorf("fault: proxy of %s: %w", upstream, err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{p: toxiproxy.NewProxy(server, upstream, port.Addr(0), upstream), port: port, toxics: map[Direction]*toxic{}}
	for _, direction := range []Direction{Requests, Replies} {
		err = errors.Join(err, p.prepare(direction))
	}
	if err == nil {
		p.toxics[Requests].opposite, p.toxics[Replies].opposite = p.toxics[Replies], p.toxics[Requests]
		err = p.p.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fault: proxy of %s: %w", upstream, err), port.Close())
	}
	return p, nil
}

// prepare adds the toxics, before there are connections: what makes the ends of
// connections resets, which it does when a connection opens, and concerns none
// of what passes; and ours, which does all harm.
//
// Note: toxiproxy waits for every connection when a toxic comes or goes, and for
// ever for one that dies at that moment, with all later ones. So ours stays.
func (p *Proxy) prepare(direction Direction) error {
	if _, err := p.add("reset_peer", 0, direction); err != nil {
		return err
	}
	w, err := p.add(toxicKind, 1, direction)
	if err == nil {
		p.toxics[direction] = w.Toxic.(*toxic)
		p.toxics[direction].direction = direction
		p.toxics[direction].replace(nil)
	}
	return err
}

// add adds one toxic. Share is that of the connections that it concerns.
func (p *Proxy) add(kind string, share float64, direction Direction) (*toxics.ToxicWrapper, error) {
	b, err := json.Marshal(map[string]any{"type": kind, "stream": direction, "toxicity": share})
	if err != nil {
		return nil, err
	}
	return p.p.Toxics.AddToxicJson(bytes.NewReader(b))
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.port.Addr(0) }

// Direction is one way through a proxy.
type Direction string

// The directions, as toxiproxy calls them.
const (
	Requests Direction = "upstream"   // to the server
	Replies  Direction = "downstream" // to the client
)

// harm begins one, of what passes in the given directions.
func (p *Proxy) harm(h impairment, in ...Direction) error {
	h.in = in
	p.begin(h)
	return nil
}

func (p *Proxy) begin(h impairment) *impairment {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harms = append(p.harms, &h)
	p.tellToxics()
	return &h
}

func (p *Proxy) tellToxics() {
	for direction, w := range p.toxics {
		var harms []*impairment
		for _, h := range p.harms {
			if slices.Contains(h.in, direction) {
				harms = append(harms, h)
			}
		}
		w.replace(harms)
	}
}

// Apart does harm that can be healed apart from other harm: heal ends what do has
// done through the methods of the proxy, and nothing else. Others must not harm
// the proxy otherwise than by Apart before it returns.
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

// Heal ends all harms. Connections on which something was swallowed are reset,
// the others go on.
func (p *Proxy) Heal() error { return p.heal(func(h *impairment) bool { return h.seen == nil }) }

func (p *Proxy) heal(which func(*impairment) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	refused := p.refuses()
	p.harms = slices.DeleteFunc(p.harms, which)
	p.tellToxics()
	if refused && !p.refuses() {
		if err := p.listen(p.p.Upstream, true); err != nil {
			return fmt.Errorf("fault: heal %s: %w", p.p.Upstream, err)
		}
	}
	return nil
}

// refuses reports whether one of the harms refuses connections. The caller holds
// mu.
func (p *Proxy) refuses() bool {
	return slices.ContainsFunc(p.harms, func(h *impairment) bool { return h.refuses })
}

// Observe calls seen for each piece of data that comes to the proxy, before any harm
// that is done to it. The piece is passed on when seen returns: what is done to
// the proxy until then befalls that piece already. Calls come from the goroutine
// of each connection and direction, at the same time. After end, which may be
// called at any time and more than once, none begins; a call under way is not
// waited for.
func (p *Proxy) Observe(seen func(Direction)) (end func()) {
	h := p.begin(impairment{seen: seen, in: []Direction{Requests, Replies}})
	return func() { _ = p.heal(func(one *impairment) bool { return one == h }) } // it refuses nothing
}

// Retarget resets all connections and passes those that come now on to another
// server.
func (p *Proxy) Retarget(upstream string) error {
	if err := p.listen(upstream, true); err != nil {
		return fmt.Errorf("fault: point the proxy of %s at %s: %w", p.p.Upstream, upstream, err)
	}
	return nil
}

// listen begins or ends to listen, with all connections. The port is nobody
// else's, but a process that is being started has the socket that was closed until
// it is a program of its own.
func (p *Proxy) listen(upstream string, on bool) error {
	return within(func() (err error) {
		for end := time.Now().Add(signalTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
			err = p.p.Update(&toxiproxy.Proxy{Listen: p.Addr(), Upstream: upstream, Enabled: on})
			if !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		return err
	})
}

// Close heals the proxy, resets all connections and stops listening.
func (p *Proxy) Close() error {
	err := p.Heal()
	err = errors.Join(err, within(func() error {
		p.p.Stop()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("fault: close the proxy of %s: %w", p.p.Upstream, err)
	}
	return p.port.Close()
}

// within bounds a change of who listens, which waits for a connection that is
// being made.
func within(change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }()
	select {
	case err := <-done:
		return err
	case <-time.After(signalTime):
		return fmt.Errorf("not done after %v", signalTime)
	}
}
