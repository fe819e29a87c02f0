package faults

import (
	"context"

	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// operations are what the operators of the stores do.
func operations() []Action {
	var all []Action
	for _, backend := range kinds.Names() {
		for _, o := range kinds.Of(backend).Operations {
			all = append(all, operation(backend, o))
		}
	}
	return all
}

func operation(backend string, o servers.Operation) Action {
	a := Action{
		Name: backend + "-" + o.Name, Does: o.Does, On: OnStore, Uses: UsesStore, Lasts: o.Lasts, StopsFor: o.StopsFor, Recovers: o.Recovers, Makes: o.Makes,
		Inject: stepOf(o.Do),
	}
	if o.Server {
		a.On = OnServer
	}
	switch {
	case o.Stops:
		a.Stops = StopsAll
	case o.StopsGrants:
		a.Stops = StopsGrants
	}
	if o.Undo != nil {
		a.Heal = stepOf(o.Undo)
	}
	for _, s := range o.Settings {
		a.Only = append(a.Only, backend+"/"+s)
	}
	if len(o.Settings) == 0 {
		a.Only = []string{backend}
	}
	return a
}

// stepOf takes a step of an operation, to the server of the event or to each.
func stepOf(step servers.Step) func(context.Context, *System, Event) error {
	return func(ctx context.Context, w *System, e Event) error {
		if e.Target == everywhere {
			return servers.OnEach(step)(ctx, w.Environment, 0)
		}
		return step(ctx, w.Environment, e.Target)
	}
}
