package otel_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/otel"
	"github.com/lockbench/lockbench/plugins/memory"
)

type recording struct {
	*otel.Recorder
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
}

func record(t *testing.T, name func(string) string) recording {
	t.Helper()
	r := recording{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	var err error
	r.Recorder, err = otel.New(&otel.Options{
		Meters:     metric.NewMeterProvider(metric.WithReader(r.reader)),
		Tracers:    trace.NewTracerProvider(trace.WithSyncer(r.spans)),
		MetricName: name,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// value adds up those series of a metric that have all attributes in attrs. It returns the sum of a
// counter, and the count and sum of a histogram.
func (r recording) value(t *testing.T, name string, attrs ...attribute.KeyValue) (count, sum float64) {
	t.Helper()
	count, sum, _ = r.read(t, name, attrs)
	return count, sum
}

func (r recording) series(t *testing.T, name string, attrs ...attribute.KeyValue) int {
	t.Helper()
	_, _, n := r.read(t, name, attrs)
	return n
}

func (r recording) exists(t *testing.T, name string, attrs ...attribute.KeyValue) {
	t.Helper()
	if n := r.series(t, name, attrs...); n == 0 {
		t.Errorf("there is no %s %v", name, attrs)
	}
}

func (r recording) read(t *testing.T, name string, attrs []attribute.KeyValue) (count, sum float64, series int) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	has := func(set attribute.Set) bool {
		return !slices.ContainsFunc(attrs, func(kv attribute.KeyValue) bool {
			v, ok := set.Value(kv.Key)
			return !ok || v != kv.Value
		})
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if has(p.Attributes) {
						sum += float64(p.Value)
						series++
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if has(p.Attributes) {
						count, sum = count+float64(p.Count), sum+p.Sum
						series++
					}
				}
			}
		}
	}
	return count, sum, series
}

func (r recording) want(t *testing.T, name string, count, sum float64, attrs ...attribute.KeyValue) {
	t.Helper()
	if c, s := r.value(t, name, attrs...); c != count || s != sum {
		t.Errorf("%s %v: count %v, sum %v; want %v and %v", name, attrs, c, s, count, sum)
	}
}

func open(t *testing.T, store *memory.Store, r recording) *core.Client {
	t.Helper()
	c := core.New(store.Open(), &core.Options{Logger: slog.New(slog.DiscardHandler), OnEvent: r.OnEvent})
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Error(err)
		}
	})
	return c
}

func TestLeaseIsMeasuredFromCallToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, func(lock string) string { return lock[:4] })
		store := memory.NewStore()
		first, second := open(t, store, r), open(t, store, r)
		opts := &core.LockOptions{TTL: 9 * time.Second}
		held, _ := first.Lock("jobs/1", opts)
		wanted, _ := second.Lock("jobs/1", opts)

		lease, err := held.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(4 * time.Second)
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		next, err := wanted.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		name := otel.NameKey.String("jobs")
		r.want(t, "lock.wait.duration", 2, 4, name)
		r.want(t, "lock.waits", 0, 1, name)
		r.want(t, "lock.hold.duration", 1, 4, name)
		r.want(t, "lock.leases.held", 0, 1, name)
		r.want(t, "lock.renew.duration", 1, 0, name)
		// The lease was renewed after about a third of its TTL, so two thirds were left.
		if _, slack := r.value(t, "lock.renew.slack"); slack < 5.5 || slack > 6.5 {
			t.Errorf("slack is %v s, want about 6 s", slack)
		}

		if err := first.Break(t.Context(), "jobs/1", next.Token()); err != nil {
			t.Fatal(err)
		}
		<-next.Done()
		synctest.Wait()
		r.want(t, "lock.leases.lost", 0, 1, name, otel.ErrorTypeKey.String("revoked"))
		r.want(t, "lock.leases.held", 0, 0, name)

		spans := r.spans.GetSpans()
		if len(spans) != 4 {
			t.Fatalf("%d spans, want 2 for each lease", len(spans))
		}
		// The spans come in any order, because each client ends its spans on a separate goroutine.
		lost := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.Status.Code == codes.Error })
		if lost < 0 || spans[lost].Name != "lock hold" {
			t.Fatalf("span %d is that of the lost lease", lost)
		}
		parent := spans[lost].Parent.SpanID()
		acquired := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.SpanContext.SpanID() == parent })
		if acquired < 0 || spans[acquired].Name != "lock acquire" {
			t.Fatalf("span %d is its parent", acquired)
		}
		if took := spans[acquired].EndTime.Sub(spans[acquired].StartTime); took != 4*time.Second {
			t.Errorf("the acquire took %v, want 4s of waiting", took)
		}
	})
}

func TestFailedAcquiresAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, nil)
		store := memory.NewStore()
		first, second := open(t, store, r), open(t, store, r)
		held, _ := first.Lock("jobs", nil)
		wanted, _ := second.Lock("jobs", nil)
		lease, err := held.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wanted.TryAcquire(t.Context()); !errors.Is(err, core.ErrHeld) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := wanted.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := wanted.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		memory := otel.BackendKey.String("memory")
		r.want(t, "lock.acquire.failures", 0, 2, memory, otel.ErrorTypeKey.String("held"))
		r.want(t, "lock.acquire.failures", 0, 1, memory, otel.ErrorTypeKey.String("deadline_exceeded"))
		spans := r.spans.GetSpans()
		if len(spans) != 4 || spans[1].Status.Code == codes.Error || spans[3].Status.Code != codes.Error {
			t.Fatalf("%d spans: %+v", len(spans), spans)
		}
		if took := spans[2].EndTime.Sub(spans[2].StartTime); spans[2].Name != "lock acquire" || took != 3*time.Second {
			t.Errorf("%q took %v, want the acquire that gave up after 3s", spans[2].Name, took)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestElectionIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, nil)
		store := memory.NewStore()
		c := open(t, store, r)
		e, err := c.Elector("leader", &core.ElectorOptions{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		go r.Watch(t.Context(), e)
		for range 2 {
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := term.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(2 * time.Second)
		}
		r.want(t, "lock.election.changes", 0, 1)
		r.want(t, "lock.election.vacancy.duration", 1, 2, otel.BackendKey.String("memory"))
	})
}

// TestCountersExistBeforeTheyCount checks that every counter starts at 0. If a series began
// with 1, Prometheus' function increase would miss the first count.
func TestCountersExistBeforeTheyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, nil)
		c := open(t, memory.NewStore(), r)
		synctest.Wait()
		types := map[string][]string{
			"lock.leases.lost": {"expired", "taken", "revoked", "unreachable", "plugin_died", "unhealthy", "max_hold"},
			"lock.acquire.failures": {
				"held", "unavailable", "denied", "invalid", "unsupported", "config", "closed", "indeterminate",
				"deadline_exceeded", "canceled", "_OTHER",
			},
		}
		for name, values := range types {
			for _, value := range values {
				r.exists(t, name, otel.BackendKey.String("memory"), otel.ErrorTypeKey.String(value))
			}
		}
		for _, name := range []string{
			"lock.leases.held", "lock.leases.suspect", "lock.waits", "lock.plugin.exits", "lock.plugin.restarts", "lock.events.dropped",
		} {
			r.exists(t, name, otel.BackendKey.String("memory"))
		}
		e, err := c.Elector("jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Watch(ctx, e)
		synctest.Wait()
		r.exists(t, "lock.election.changes", otel.BackendKey.String("memory"))
	})
}

// TestCountersByNameExistBeforeTheyCount checks counters with lock.name. Each series of held leases
// must have lock.name, because a series without it would look like an election without a leader.
func TestCountersByNameExistBeforeTheyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, func(lock string) string { return lock })
		c := open(t, memory.NewStore(), r)
		l, _ := c.Lock("jobs", nil)
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.exists(t, "lock.leases.lost", otel.NameKey.String("jobs"), otel.ErrorTypeKey.String("expired"))
		r.exists(t, "lock.plugin.exits", otel.BackendKey.String("memory"))
		if n := r.series(t, "lock.leases.held"); n != 1 {
			t.Errorf("%d series of held leases, want that of the name", n)
		}
	})
}

func TestSpansAreChildrenOfTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, nil)
		tracer := trace.NewTracerProvider().Tracer("application")
		c := open(t, memory.NewStore(), r)
		l, _ := c.Lock("jobs", nil)
		ctx, span := tracer.Start(t.Context(), "request")
		lease, err := l.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(ctx); !errors.Is(err, core.ErrHeld) {
			t.Fatal(err)
		}
		span.End()
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		spans := r.spans.GetSpans()
		if len(spans) != 3 {
			t.Fatalf("%d spans, want 3", len(spans))
		}
		for _, s := range spans {
			if s.SpanContext.TraceID() != span.SpanContext().TraceID() {
				t.Errorf("%q is of another trace", s.Name)
			}
			if s.Name == "lock acquire" && s.Parent.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("%q is not a child of the caller's span", s.Name)
			}
		}
	})
}

func TestDroppedEvents(t *testing.T) {
	r := record(t, nil)
	ev := core.Event{Kind: core.EventReleased, Backend: "b", Name: "jobs", Owner: "o", Time: time.Now(), Dropped: 3}
	r.OnEvent(ev) // the event of the acquire was among the dropped ones
	r.want(t, "lock.events.dropped", 0, 3, otel.BackendKey.String("b"))
	r.want(t, "lock.leases.held", 0, 0)
	r.want(t, "lock.hold.duration", 0, 0)
}

func TestPluginAndDoubt(t *testing.T) {
	r := record(t, nil)
	for _, kind := range []core.EventKind{core.EventSuspect, core.EventPluginDown, core.EventPluginUp, core.EventPluginUp} {
		r.OnEvent(core.Event{Kind: kind, Backend: "b", Time: time.Now()})
	}
	r.want(t, "lock.leases.suspect", 0, 1)
	r.want(t, "lock.plugin.exits", 0, 1)
	r.want(t, "lock.plugin.restarts", 0, 2)
}
