// Package otel turns the events of package core into OpenTelemetry metrics and spans. To use it,
// set core.Options.OnEvent to the OnEvent method of a [Recorder]. The application must set up the
// providers and exporters, because this package imports only the OpenTelemetry API.
//
// Every metric has the attribute lock.backend. If [Options.MetricName] returns a name for a lock,
// the metrics of that lock also have lock.name:
//
//	lock.wait.duration              s          from the call of Acquire to the grant
//	lock.hold.duration              s          from grant to release or loss; error.type if lost
//	lock.renew.duration             s          round trip of a renewal
//	lock.renew.slack                s          time left of the lease when its renewal was confirmed
//	lock.leases.held                {lease}    leases held now
//	lock.leases.lost                {lease}    leases lost, by cause in error.type
//	lock.leases.suspect             {lease}    leases that a failed renewal put in doubt
//	lock.waits                      {wait}     acquires that had to wait
//	lock.acquire.failures           {failure}  acquires that returned no lease, by error.type
//	lock.plugin.exits               {exit}     plugin processes that ended by themselves
//	lock.plugin.restarts            {restart}  plugin processes that replaced an earlier one
//	lock.events.dropped             {event}    events missed because too many came at once
//	lock.election.changes           {change}   new leaders, as an observer sees them
//	lock.election.vacancy.duration  s          from one leader's end to the next leader's term
//
// OpenTelemetry's semantic conventions define error.type but no names for locks. The names and
// units above follow the rules of those conventions. For a lost lease, error.type is the text of
// core.CauseName with underscores: expired, taken, revoked, unreachable, plugin_died, unhealthy,
// max_hold, or released for a lease that Close did not wait for. For a failed acquire, error.type
// is held, unavailable, denied, invalid, unsupported, config, closed or indeterminate. If the
// acquire's ctx ended before the store answered, error.type is deadline_exceeded or canceled. For
// any other error, error.type is _OTHER. If an acquire waited until its ctx ended, error.type says
// why the acquire had to wait.
//
// Every counter starts at 0, for every value of error.type. A series without lock.name exists as
// soon as a client is made. A series with lock.name exists as soon as its lock has an event. So
// when the first lease is lost, the series of lost leases goes from 0 to 1.
//
// The span "lock acquire" lasts from the call of Acquire to the grant. If the ctx of Acquire has a
// span, that span is the parent of "lock acquire". The span "lock hold" lasts from the grant to the
// end of the lease, and is a child of "lock acquire". Both spans have the attributes lock.backend,
// lock.name, lock.owner and lock.token. Each time a lease becomes suspect, "lock hold" gets an
// event. If the lease is lost, "lock hold" gets an error status. A failed acquire has only the span
// "lock acquire", with error.type and no token. That span has an error status, unless the acquire
// failed because another owner held the lock, which is a normal answer.
package otel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockbench/lockbench/core"
)

const scope = "github.com/lockbench/lockbench/core/otel"

// The names of the attributes.
const (
	BackendKey   = attribute.Key("lock.backend")
	NameKey      = attribute.Key("lock.name")
	OwnerKey     = attribute.Key("lock.owner")
	TokenKey     = attribute.Key("lock.token")
	ErrorTypeKey = attribute.Key("error.type")
)

// Options are the options of a Recorder. Nil and zero fields mean the defaults.
type Options struct {
	// Meters provides the meter of the metrics. Default: the global provider.
	Meters metric.MeterProvider
	// Tracers provides the tracer of the spans. Default: the global provider.
	Tracers trace.TracerProvider
	// MetricName returns the value of lock.name for the metrics of the given lock. If MetricName is
	// nil or returns "", the metrics have no lock.name. MetricName must return few different values,
	// because each value adds a series to every metric. Spans always have lock.name.
	MetricName func(lock string) string
}

// Recorder records the events of any number of clients. Any number of goroutines may use a
// Recorder. Its methods wait for an exporter only if the application's providers do.
type Recorder struct {
	tracer trace.Tracer
	name   func(string) string // nil if metrics have no attribute lock.name
	in     instruments

	mu     sync.Mutex
	held   map[lease]open
	zeroed map[series]bool // the series that were created at 0
}

// series has the attributes of a lock's counters or, if ofPlugin is set, of a plugin's counters.
type series struct {
	attrs    attribute.Distinct
	ofPlugin bool
}

// lease identifies a grant of the store among the grants of all clients.
type lease struct{ backend, name, owner string }

// open is what a Recorder remembers of a lease that has not ended.
type open struct {
	since time.Time
	span  trace.Span
}

// New returns a Recorder. The error comes from the meter provider.
func New(opts *Options) (*Recorder, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Meters == nil {
		o.Meters = otel.GetMeterProvider()
	}
	if o.Tracers == nil {
		o.Tracers = otel.GetTracerProvider()
	}
	in, err := newInstruments(o.Meters.Meter(scope))
	if err != nil {
		return nil, err
	}
	return &Recorder{tracer: o.Tracers.Tracer(scope), name: o.MetricName, in: in, held: map[lease]open{}, zeroed: map[series]bool{}}, nil
}

// OnEvent records ev. Use it as core.Options.OnEvent.
func (r *Recorder) OnEvent(ev core.Event) {
	ctx := ev.Context
	if ctx == nil {
		ctx = context.Background()
	}
	attrs := r.attributes(ev.Backend, ev.Name)
	all := attribute.NewSet(attrs...)
	r.zero(ctx, ev, attrs, all)
	set := metric.WithAttributeSet(all)
	if ev.Dropped > 0 {
		backend := attribute.NewSet(BackendKey.String(ev.Backend))
		r.in.dropped.Add(ctx, int64(ev.Dropped), metric.WithAttributeSet(backend))
	}
	switch ev.Kind {
	case core.EventAcquired:
		r.in.wait.Record(ctx, ev.Took.Seconds(), set)
		r.in.held.Add(ctx, 1, set)
		r.begin(ctx, ev)
	case core.EventWaiting:
		r.in.waits.Add(ctx, 1, set)
	case core.EventRenewed:
		r.in.renew.Record(ctx, ev.Took.Seconds(), set)
		if ev.Slack > 0 {
			r.in.slack.Record(ctx, ev.Slack.Seconds(), set)
		}
	case core.EventSuspect:
		r.in.suspect.Add(ctx, 1, set)
		r.doubt(ev)
	case core.EventLost:
		cause := typed(attrs, causeOf(ev.Err))
		r.in.lost.Add(ctx, 1, cause)
		r.ended(ctx, ev, set, cause)
	case core.EventReleased:
		r.ended(ctx, ev, set, set)
	case core.EventAcquireFailed:
		r.in.failures.Add(ctx, 1, typed(attrs, typeOf(ev.Err)))
		r.fail(ctx, ev)
	case core.EventPluginDown:
		r.in.exits.Add(ctx, 1, set)
	case core.EventPluginUp:
		r.in.restarts.Add(ctx, 1, set)
	}
}

func typed(attrs []attribute.KeyValue, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(attrs), ErrorTypeKey.String(value))...))
}

func (r *Recorder) attributes(backend, name string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{BackendKey.String(backend)}
	if name != "" && r.name != nil {
		if name = r.name(name); name != "" {
			attrs = append(attrs, NameKey.String(name))
		}
	}
	return attrs
}

// other is the error.type that the semantic conventions define for an error without a name.
const other = "_OTHER"

// causeOf returns the error.type of a lost lease.
func causeOf(err error) string {
	name := core.CauseName(err)
	if name == "" {
		return other
	}
	return strings.ReplaceAll(name, " ", "_")
}

var causes = []error{
	core.ErrExpired, core.ErrTaken, core.ErrRevoked, core.ErrUnreachable, core.ErrPluginDied, core.ErrUnhealthy, core.ErrMaxHold,
	core.ErrReleased, // Close did not wait for the lease
}

// zero creates the counters for the event ev with the value 0, unless they exist already.
func (r *Recorder) zero(ctx context.Context, ev core.Event, attrs []attribute.KeyValue, all attribute.Set) {
	// If MetricName is set, a lock without lock.name has the same metric attributes as the plugin.
	created := series{all.Equivalent(), ev.Name == "" && r.name != nil}
	r.mu.Lock()
	known := r.zeroed[created]
	r.zeroed[created] = true
	r.mu.Unlock()
	if known {
		return
	}
	set := metric.WithAttributeSet(all)
	if len(attrs) == 1 {
		for _, c := range []metric.Int64Counter{r.in.exits, r.in.restarts, r.in.dropped} {
			c.Add(ctx, 0, set)
		}
	}
	if created.ofPlugin {
		return // MetricName is set, so the counters of a lock without lock.name would stay at 0
	}
	r.in.held.Add(ctx, 0, set)
	r.in.waits.Add(ctx, 0, set)
	r.in.suspect.Add(ctx, 0, set)
	for _, cause := range causes {
		r.in.lost.Add(ctx, 0, typed(attrs, causeOf(cause)))
	}
	for _, t := range errorTypes {
		r.in.failures.Add(ctx, 0, typed(attrs, t.name))
	}
	r.in.failures.Add(ctx, 0, typed(attrs, other))
}

// begin records the span "lock acquire" and starts the span "lock hold".
func (r *Recorder) begin(ctx context.Context, ev core.Event) {
	attrs := trace.WithAttributes(
		BackendKey.String(ev.Backend), NameKey.String(ev.Name), OwnerKey.String(ev.Owner),
		TokenKey.Int64(int64(ev.Token)), // attributes cannot be unsigned numbers
	)
	client := trace.WithSpanKind(trace.SpanKindClient)
	ctx, acquire := r.tracer.Start(ctx, "lock acquire", attrs, client, trace.WithTimestamp(ev.Time.Add(-ev.Took)))
	acquire.End(trace.WithTimestamp(ev.Time))
	_, hold := r.tracer.Start(ctx, "lock hold", attrs, trace.WithTimestamp(ev.Time))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[leaseOf(ev)] = open{since: ev.Time, span: hold}
}

func (r *Recorder) fail(ctx context.Context, ev core.Event) {
	attrs := trace.WithAttributes(
		BackendKey.String(ev.Backend), NameKey.String(ev.Name), OwnerKey.String(ev.Owner), ErrorTypeKey.String(typeOf(ev.Err)),
	)
	client := trace.WithSpanKind(trace.SpanKindClient)
	_, acquire := r.tracer.Start(ctx, "lock acquire", attrs, client, trace.WithTimestamp(ev.Time.Add(-ev.Took)))
	if typeOf(ev.Err) != "held" {
		acquire.SetStatus(codes.Error, textOf(ev.Err))
	}
	acquire.End(trace.WithTimestamp(ev.Time))
}

// errorTypes is in the order in which typeOf tests the errors. The errors of a ctx come last. So if
// an acquire waited until its ctx ended, its type names the error that made it wait.
var errorTypes = []struct {
	err  error
	name string
}{
	{core.ErrIndeterminate, "indeterminate"},
	{core.ErrDenied, "denied"},
	{core.ErrConfig, "config"},
	{core.ErrUnsupported, "unsupported"},
	{core.ErrInvalid, "invalid"},
	{core.ErrClosed, "closed"},
	{core.ErrUnavailable, "unavailable"},
	{core.ErrHeld, "held"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{context.Canceled, "canceled"},
}

// typeOf returns the error.type of a failed acquire.
func typeOf(err error) string {
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return other
}

func leaseOf(ev core.Event) lease { return lease{ev.Backend, ev.Name, ev.Owner} }

func (r *Recorder) doubt(ev core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o, ok := r.held[leaseOf(ev)]; ok {
		o.span.AddEvent("suspect", trace.WithTimestamp(ev.Time), trace.WithAttributes(attribute.String("exception.message", textOf(ev.Err))))
	}
}

// ended ends the span of a lease and records how long the lease was held. If the event of the
// lease's grant was dropped, ended does nothing.
func (r *Recorder) ended(ctx context.Context, ev core.Event, set, cause metric.MeasurementOption) {
	r.mu.Lock()
	o, ok := r.held[leaseOf(ev)]
	delete(r.held, leaseOf(ev))
	r.mu.Unlock()
	if !ok {
		return
	}
	r.in.held.Add(ctx, -1, set)
	r.in.hold.Record(ctx, ev.Time.Sub(o.since).Seconds(), cause)
	if ev.Kind == core.EventLost {
		o.span.SetAttributes(ErrorTypeKey.String(causeOf(ev.Err)))
		o.span.SetStatus(codes.Error, textOf(ev.Err))
	}
	o.span.End(trace.WithTimestamp(ev.Time))
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Watch records the new leaders of the election e until ctx ends or e's client closes. This process
// need not be a candidate in e.
//
// A vacancy lasts from the time when this process sees that there is no leader until it sees a new
// leader. If this process sees one leader directly after another, it records a vacancy of 0 s. The
// time from a leader's death to the end of its lease does not count, because other hosts do not
// know when the leader died.
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

type instruments struct {
	wait, hold, renew, slack, vacancy                        metric.Float64Histogram
	held                                                     metric.Int64UpDownCounter
	lost, suspect, waits, failures, exits, restarts, changes metric.Int64Counter
	dropped                                                  metric.Int64Counter
}

// tripBounds and longBounds are histogram bounds in seconds, for round trips and for longer times.
var (
	tripBounds = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	longBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
)

func newInstruments(m metric.Meter) (in instruments, err error) {
	var errs []error
	seconds := func(name, doc string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(doc), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, doc string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(doc), metric.WithUnit(unit))
		errs = append(errs, err)
		return c
	}
	in.wait = seconds("lock.wait.duration", "Time from the call of Acquire to the grant.", longBounds)
	in.hold = seconds("lock.hold.duration", "Time from the grant to the release or the loss.", longBounds)
	in.renew = seconds("lock.renew.duration", "Round trip of a renewal.", tripBounds)
	in.slack = seconds("lock.renew.slack", "What was left of a lease when its renewal was confirmed.", longBounds)
	in.vacancy = seconds("lock.election.vacancy.duration", "Time from one leader's end to the next one's term.", longBounds)
	in.lost = count("lock.leases.lost", "{lease}", "Leases lost, by cause.")
	in.suspect = count("lock.leases.suspect", "{lease}", "Leases that a failed renewal put in doubt.")
	in.waits = count("lock.waits", "{wait}", "Acquires that had to wait, and refusals while they did.")
	in.failures = count("lock.acquire.failures", "{failure}", "Acquires that returned no lease, by error.")
	in.exits = count("lock.plugin.exits", "{exit}", "Plugin processes that ended by themselves.")
	in.restarts = count("lock.plugin.restarts", "{restart}", "Plugin processes that replaced one.")
	in.dropped = count("lock.events.dropped", "{event}", "Events that were not recorded because too many came at once.")
	in.changes = count("lock.election.changes", "{change}", "New leaders.")
	in.held, err = m.Int64UpDownCounter("lock.leases.held", metric.WithDescription("Leases held now."), metric.WithUnit("{lease}"))
	return in, errors.Join(append(errs, err)...)
}
