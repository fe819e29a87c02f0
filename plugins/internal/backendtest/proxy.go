package backendtest

import (
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/inject"
)

// NewProxy returns a proxy, which stops when the test ends. New connections go to the addresses in
// the to parameter in turn.
func NewProxy(t drivertest.T, to ...string) *inject.Proxy {
	t.Helper()
	p, err := inject.NewProxy(to[0])
	Must(t, err)
	t.Cleanup(func() { Must(t, p.Close()) })
	Must(t, p.Lead(to...))
	return p
}
