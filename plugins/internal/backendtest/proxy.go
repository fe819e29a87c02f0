package backendtest

import (
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/fault"
)

// NewProxy leads connections to one server or, in turn, to several, until the
// test ends.
func NewProxy(t drivertest.T, to ...string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(to[0])
	Must(t, err)
	t.Cleanup(func() { Must(t, p.Close()) })
	Must(t, p.Lead(to...))
	return p
}
