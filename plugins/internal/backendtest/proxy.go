package backendtest

import (
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/inject"
)

// NewProxy returns a proxy that stops when the test ends. It leads new connections to the given
// addresses in turn.
func NewProxy(t drivertest.T, to ...string) *inject.Proxy {
	t.Helper()
	p, err := inject.NewProxy(to[0])
	Must(t, err)
	t.Cleanup(func() { Must(t, p.Close()) })
	Must(t, p.Lead(to...))
	return p
}
