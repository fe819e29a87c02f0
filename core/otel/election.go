package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockbench/lockbench/core"
)

// Watch records the changes of an election until ctx ends or its client
// closes. The election need not be one that this process is a candidate in.
//
// The vacancy runs from when the leadership was seen to be free to when
// somebody was seen to have it: a takeover as others notice it. A leader whose
// successor is seen at once left none, which counts as 0. That the former
// leader had died before its lease ended, nobody but its host knows.
func (r *Recorder) Watch(ctx context.Context, e *core.Elector) {
	set := metric.WithAttributeSet(attribute.NewSet(r.attributes(e.Backend(), e.Name())...))
	r.in.changes.Add(ctx, 0, set)
	var led bool
	var vacant time.Time
	for change := range e.Observe(ctx) {
		switch change.Kind {
		case core.Vacant:
			if led && vacant.IsZero() {
				vacant = time.Now()
			}
		case core.Elected:
			if led {
				gap := time.Duration(0)
				if !vacant.IsZero() {
					gap = time.Since(vacant)
				}
				r.in.changes.Add(ctx, 1, set)
				r.in.vacancy.Record(ctx, gap.Seconds(), set)
			}
			led, vacant = true, time.Time{}
		}
	}
}
