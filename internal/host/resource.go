package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Resources are what holders write to: for each lock one thing of its name
// behind a guard, and its twin without. Lock number i writes to the i-th of those
// that are there, and round again.
type Resources struct {
	Dir    string            `json:"dir"`              // for files
	Guards map[string]string `json:"guards,omitempty"` // addresses by [servers.Guard.Kind]
}

// resource is one kind of thing.
type resource struct {
	kind string
	*servers.Guarded
}

type writer []resource

func openWriter(r Resources) (writer, error) {
	w := writer{{"file", fileResource(r.Dir)}}
	for _, s := range kinds.All() {
		g := s.Guard
		if g == nil || r.Guards[g.Kind] == "" {
			continue
		}
		guarded, err := g.Open(r.Guards[g.Kind])
		if err != nil {
			return nil, err
		}
		w = append(w, resource{g.Kind, guarded})
	}
	return w, nil
}

func (w writer) close() error {
	return inject.Each(w, func(r resource) error { return r.Close() })
}

// writeTimeout bounds one write: the resources share a machine with faults.
const writeTimeout = 5 * time.Second

// write writes to the guarded thing of a lock and to its twin. A write that
// fails otherwise than by its guard had no effect that anybody can tell, and
// is left out.
func (w writer) write(h *holding, name string) {
	a, l := h.agent, &h.record // what is read of it does not change
	r := w[l.Name%len(w)]
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	for _, guarded := range []bool{true, false} {
		do, thing := r.WriteBare, name+"-bare"
		if guarded {
			do, thing = r.Write, name
		}
		n := results.Write{Host: l.Host, Name: l.Name, Token: l.Token, Resource: r.kind, Guarded: guarded, SentNs: a.clock.Now()}
		err := do(ctx, thing, l.Token)
		n.DoneNs = a.clock.Now()
		n.Refused = errors.Is(err, fence.ErrStale)
		if err == nil || n.Refused {
			a.send(note{Write: &n})
		}
	}
}

func fileResource(dir string) *servers.Guarded {
	return &servers.Guarded{
		Write: func(_ context.Context, thing string, token uint64) error {
			return fence.File{Path: filepath.Join(dir, thing)}.Write(token, strconv.AppendUint(nil, token, 10))
		},
		WriteBare: func(_ context.Context, thing string, token uint64) error {
			return os.WriteFile(filepath.Join(dir, thing), strconv.AppendUint(nil, token, 10), 0o644)
		},
		Close: func() error { return nil },
	}
}
