package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	p    *toxiproxy.Proxy
	port *ports.Taken
	taps taps

	mu       sync.Mutex
	harms    []*harm
	count    int // of all toxics there ever were
	refusing int // how many of the harms refuse connections
}

// harm is one of those that are done to a proxy.
type harm struct{ end func() error }

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
	p := &Proxy{p: toxiproxy.NewProxy(server, upstream, port.Addr(0), upstream), port: port}
	for _, way := range []Direction{Requests, Replies} {
		err = errors.Join(err, p.prepare(way))
	}
	if err == nil {
		err = p.p.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fault: proxy of %s: %w", upstream, err), port.Close())
	}
	return p, nil
}

// prepare adds what is no harm, before there are connections: the tap; and what
// makes the ends of connections resets, of which the toxic does so when a
// connection opens, and concerns none of what passes. It stands behind the tap,
// so that a change of the harms does not wait for those who listen.
func (p *Proxy) prepare(way Direction) error {
	w, err := p.add(tapKind, tapKind+string(way), 1, nil, way)
	if err != nil {
		return err
	}
	t := w.Toxic.(*tap)
	t.taps, t.way = &p.taps, way
	_, err = p.add("reset_peer", "abrupt-"+string(way), 0, nil, way)
	return err
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.p.Listen }

// Direction is one way through a proxy.
type Direction string

// The directions, as toxiproxy calls them.
const (
	Requests Direction = "upstream"   // to the server
	Replies  Direction = "downstream" // to the client
)

// add adds one toxic, by the kind and attributes of toxiproxy. Share is that of
// the connections that it concerns.
func (p *Proxy) add(kind, name string, share float64, attributes map[string]any, way Direction) (*toxics.ToxicWrapper, error) {
	b, err := json.Marshal(map[string]any{
		"type": kind, "name": name, "stream": way, "toxicity": share, "attributes": attributes,
	})
	if err != nil {
		return nil, err
	}
	return p.p.Toxics.AddToxicJson(bytes.NewReader(b))
}

// harm does one kind of harm to what passes in the given directions.
func (p *Proxy) harm(kind string, attributes map[string]any, ways ...Direction) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, way := range ways {
		p.count++
		name := fmt.Sprint(kind, "-", p.count)
		var w *toxics.ToxicWrapper
		err := within(func() (err error) {
			w, err = p.add(kind, name, 1, attributes, way)
			return err
		})
		if err != nil {
			return fmt.Errorf("fault: %s on %s of %s: %w", kind, way, p.p.Upstream, err)
		}
		p.harms = append(p.harms, &harm{func() error {
			if h, ok := w.Toxic.(filler); ok {
				h.fill()
			}
			return p.p.Toxics.RemoveToxic(context.Background(), name)
		}})
	}
	return nil
}

// filler is a toxic that keeps the ends of connections to itself. It is filled
// before it is removed, which toxiproxy does not do to those.
type filler interface{ fill() }

// Apart does harm that can be healed apart from other harm: heal ends what do has
// done through the methods of the proxy, and nothing else. Others must not harm
// the proxy before Apart returns.
func (p *Proxy) Apart(do func(*Proxy) error) (heal func() error, err error) {
	p.mu.Lock()
	before := len(p.harms)
	p.mu.Unlock()
	err = do(p)
	p.mu.Lock()
	done := slices.Clone(p.harms[before:])
	p.mu.Unlock()
	return func() error { return p.heal(func(h *harm) bool { return slices.Contains(done, h) }) }, err
}

// Heal ends all harms. Connections on which something was swallowed are reset,
// the others go on.
func (p *Proxy) Heal() error { return p.heal(func(*harm) bool { return true }) }

func (p *Proxy) heal(which func(*harm) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	p.harms = slices.DeleteFunc(p.harms, func(h *harm) bool {
		if !which(h) {
			return false
		}
		errs = append(errs, within(h.end))
		return true
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fault: heal %s: %w", p.p.Upstream, err)
	}
	return nil
}

// Retarget resets all connections and passes those that come now on to another
// server.
func (p *Proxy) Retarget(upstream string) error {
	if err := p.listen(upstream, true); err != nil {
		return fmt.Errorf("fault: point the proxy of %s at %s: %w", p.p.Upstream, upstream, err)
	}
	return nil
}

// listen begins or ends to listen, with all connections.
func (p *Proxy) listen(upstream string, on bool) error {
	return within(func() error {
		return p.p.Update(&toxiproxy.Proxy{Listen: p.Addr(), Upstream: upstream, Enabled: on})
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

// within bounds a change to a proxy: toxiproxy waits without limit for a
// connection that dies at that very moment.
func within(change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }()
	select {
	case err := <-done:
		return err
	case <-time.After(settleTime):
		return fmt.Errorf("not done after %v", settleTime)
	}
}
