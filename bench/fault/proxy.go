package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
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
	p := &Proxy{toxiproxy.NewProxy(server, upstream, port.Addr(0), upstream), port}
	if err := p.p.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("fault: proxy of %s: %w", upstream, err), port.Close())
	}
	if err := p.abrupt(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.p.Listen }

// direction is one way through a proxy, seen from the client.
type direction string

const (
	requests direction = "upstream"
	replies  direction = "downstream"
)

// harm adds one toxic, by the kind and attributes of toxiproxy, to the given
// directions. Share is that of the connections that it concerns.
func (p *Proxy) harm(kind string, share float64, attributes map[string]any, ways ...direction) error {
	for _, way := range ways {
		b, err := json.Marshal(map[string]any{
			"type": kind, "stream": way, "toxicity": share, "attributes": attributes,
		})
		if err != nil {
			return err
		}
		err = within(func() error {
			_, err := p.p.Toxics.AddToxicJson(bytes.NewReader(b))
			return err
		})
		if err != nil {
			return fmt.Errorf("fault: %s on %s of %s: %w", kind, way, p.p.Upstream, err)
		}
	}
	return nil
}

// abrupt makes the ends of connections resets. The toxic that does so when a
// connection opens concerns none of what passes.
func (p *Proxy) abrupt() error { return p.harm("reset_peer", 0, nil, requests) }

// Heal ends all harms. Connections on which something was swallowed are reset,
// the others go on.
func (p *Proxy) Heal() error {
	err := within(func() error {
		p.fillHoles()
		p.p.Toxics.ResetToxics(context.Background())
		return nil
	})
	if err != nil {
		return fmt.Errorf("fault: heal %s: %w", p.p.Upstream, err)
	}
	return p.abrupt()
}

// Retarget resets all connections and passes those that come now on to another
// server.
func (p *Proxy) Retarget(upstream string) error {
	err := within(func() error {
		return p.p.Update(&toxiproxy.Proxy{Listen: p.Addr(), Upstream: upstream, Enabled: true})
	})
	if err != nil {
		return fmt.Errorf("fault: point the proxy of %s at %s: %w", p.p.Upstream, upstream, err)
	}
	return nil
}

// Close resets all connections and stops listening.
func (p *Proxy) Close() error {
	err := within(func() error {
		p.fillHoles()
		p.p.Stop()
		return nil
	})
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
