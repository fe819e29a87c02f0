package drivertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/memory"
)

// fixture simulates a server, plugin processes and hosts with the memory backend behind valves. So
// every case can run, and fail, inside one process and one synctest bubble.
type fixture struct {
	bug   bug
	plant func(*calls) // plants the bug in a connection; all connections share the bug's state
	store *memory.Store
	other *memory.Store
	line  *valve        // the connection to the server
	over  chan struct{} // closed when the case has ended, to end calls that hang
	links int
	pids  int
	start func(keepData bool) // set by a bug, and called when the store starts; may be nil
}

func newFixture(t T, b bug) *fixture {
	w := &fixture{bug: b, store: memory.NewStore(), other: memory.NewStore(), line: newValve(), over: make(chan struct{}), pids: 100}
	if b.plant != nil {
		w.plant = b.plant(w)
	}
	if b.sameNamespace {
		w.other = w.store
	}
	t.Cleanup(func() { w.line.set(false, false); close(w.over) })
	return w
}

func (w *fixture) harness() *Harness {
	return &Harness{
		Open:      func(t T) driver.Backend { return w.open(t, w.store) },
		Other:     func(t T) driver.Backend { return w.open(t, w.other) },
		Denied:    w.denied,
		Store:     w,
		Plugin:    func(b driver.Backend) Process { return b.(*process) },
		Stacks:    func(b driver.Backend) string { return fmt.Sprintf("stacks of plugin %d", b.(*process).Pid()) },
		Host:      w.host,
		Leftovers: func(t T) []string { return w.names() },
		hook:      w.bug.hook,
	}
}

func (w *fixture) denied(t T) driver.Backend {
	cause := driver.ErrDenied
	if w.bug.hidesRefusal {
		cause = driver.ErrUnavailable
	}
	c := callsOf(w.store.Open().(whole))
	c.check = func(context.Context) error { return cause }
	c.acquire = func(context.Context, driver.Request) (uint64, error) { return 0, cause }
	return c
}

func fixtureProperties(b bug) driver.Properties {
	p := memory.Spec.Properties
	p.Name, p.Scope, p.SurvivesPlugin = "fixture", driver.ScopeShared, !b.diesWithPlugin
	p.Fencing = cmp.Or(b.fencing, driver.FencingStrict)
	p.Capabilities = append(slices.Clone(p.Capabilities), driver.CapNotifier)
	if b.lacks != "" {
		p.Capabilities = slices.DeleteFunc(p.Capabilities, func(c driver.Capability) bool { return c == b.lacks })
	}
	if b.lacks == driver.CapWaiter || b.noOrder {
		p.FIFO, p.FirstSpan = false, 0
	}
	return p
}

func (w *fixture) link(store *memory.Store) *calls {
	l := callsOf(store.Open().(whole)).behind(w.line)
	l.props = func() driver.Properties { return fixtureProperties(w.bug) }
	l = callsOf(l)
	w.links++
	if w.plant != nil {
		w.plant(l)
	}
	return l
}

func (w *fixture) names() []string {
	var names []string
	b := w.store.Open().(driver.Admin)
	_ = b.List(context.Background(), "", func(h driver.Holder) bool { names = append(names, h.Name); return true })
	return names
}

// wipe ends every lease, as a store does when it loses its data.
func (w *fixture) wipe() {
	b := w.store.Open().(whole)
	_ = b.List(context.Background(), "", func(h driver.Holder) bool {
		_ = b.Break(context.Background(), h.Name, h.Token)
		return true
	})
}

func (w *fixture) Stop(T) { w.line.set(true, false) }

func (w *fixture) Start(_ T, keepData bool) {
	if w.bug.neverBack {
		return
	}
	if !keepData {
		w.wipe()
	}
	if w.start != nil {
		w.start(keepData)
	}
	w.line.set(false, false)
}

func (w *fixture) Freeze(T) { w.line.set(false, true) }
func (w *fixture) Resume(T) { w.line.set(false, false) }
