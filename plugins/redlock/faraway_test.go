package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// A node whose round trip takes longer than node_timeout never votes. The errors of Check and
// TryAcquire must say that, and must name the configuration key node_timeout.
func TestNodesFartherThanNodeTimeout(t *testing.T) {
	nodes := start(t, 3, nil)
	must(t, initialise(t.Context(), configOf(nodes, nil)))
	addresses := []string{nodes[0].Addr()}
	var proxies []*inject.Proxy
	for _, s := range nodes[1:] {
		p := backendtest.NewProxy(t, s.Addr())
		must(t, p.Delay(60*time.Millisecond, 0))
		addresses, proxies = append(addresses, p.Addr()), append(proxies, p)
	}
	cfg := driver.Config{"address": strings.Join(addresses, ","), "node_timeout": "50ms"}
	b := connect(t, cfg)
	for what, ask := range map[string]func() error{
		"check": func() error { return b.Check(t.Context()) },
		"acquire": func() error {
			_, err := b.TryAcquire(t.Context(), lease("a", "o1"))
			return err
		},
	} {
		eventually(t, what+" says why", func() bool {
			err := ask()
			if err == nil {
				t.Fatalf("%s: no error, with one of three nodes", what)
			}
			said := errors.Is(err, driver.ErrUnavailable)
			for _, p := range proxies {
				said = said && strings.Contains(err.Error(), "node_timeout (50ms), which must be longer than a round trip to "+p.Addr())
			}
			return said
		})
	}
	cfg["node_timeout"] = "500ms"
	acquireSoon(t, connect(t, cfg), "with a longer one")
}
