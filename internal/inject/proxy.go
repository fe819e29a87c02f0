package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/rs/zerolog/log"

	"github.com/lockbench/lockbench/internal/ports"
)

// Proxy stands in front of one server and harms what passes through it, on
// the connections that are open as well as on later ones. Harms add up until
// [Proxy.Heal]. Its methods may be called from any goroutine.
type Proxy struct {
	// p has the toxics. It never listens: it would end all connections when
	// those that come are to lead elsewhere.
	p      *toxiproxy.Proxy
	server *toxiproxy.ApiServer
	port   *ports.Taken
	toxics map[Direction]*toxic
	accept sync.WaitGroup

	apart sync.Mutex // held while one harms it apart from others
	mu    sync.Mutex
	harms []*impairment // and who observes
	// leads are the servers to which connections lead in turn, and next is the
	// number of the next one.
	leads    []string
	next     int
	listener net.Listener // nil while it refuses connections
	open     map[*conn]bool
	cuts     int // how often all connections were reset
}

// Some toxics write to the global logger.
func init() { log.Logger = zerolog.Nop() }

// NewProxy listens on a free port of the loopback interface and passes
// connections on to the server at upstream, a host:port.
func NewProxy(upstream string) (*Proxy, error) {
	// Refuse stops listening for a while.
	port, err := ports.Take(1)
	if err != nil {
		return nil, fmt.Errorf("inject: proxy of %s: %w", upstream, err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{
		p: toxiproxy.NewProxy(server, upstream, port.Addr(0), upstream), server: server, port: port,
		toxics: map[Direction]*toxic{}, leads: []string{upstream}, open: map[*conn]bool{},
	}
	for _, direction := range []Direction{Requests, Replies} {
		err = errors.Join(err, p.prepare(direction))
	}
	if err == nil {
		p.toxics[Requests].opposite, p.toxics[Replies].opposite = p.toxics[Replies], p.toxics[Requests]
		err = p.listen()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("inject: proxy of %s: %w", upstream, err), port.Close())
	}
	return p, nil
}

// prepare adds our toxic, which does all harm, before there are connections.
//
// Note: toxiproxy waits for every connection when a toxic comes or goes, and for
// ever for one that dies at that moment, with all later ones. So ours stays.
func (p *Proxy) prepare(direction Direction) error {
	b, err := json.Marshal(map[string]any{"type": toxicKind, "stream": direction, "toxicity": 1})
	if err != nil {
		return err
	}
	w, err := p.p.Toxics.AddToxicJson(bytes.NewReader(b))
	if err == nil {
		p.toxics[direction] = w.Toxic.(*toxic)
		p.toxics[direction].direction = direction
		p.toxics[direction].replace(nil)
	}
	return err
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
		if err := p.listen(); err != nil {
			return fmt.Errorf("inject: heal %s: %w", p.p.Upstream, err)
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

// Close heals the proxy, resets all connections and stops listening.
func (p *Proxy) Close() error {
	err := p.Heal()
	p.mu.Lock()
	p.deafen()
	p.mu.Unlock()
	p.accept.Wait()
	return errors.Join(err, p.port.Close())
}
