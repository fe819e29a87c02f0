package core

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/internal/deliver"
)

// EventKind says what an [Event] is about.
type EventKind int

// The kinds of events. Each lease has exactly one EventAcquired, and one EventReleased or
// EventLost. An acquire that gets no lease has one EventAcquireFailed, unless the client is closed
// or Options are invalid. A lease's last event is dropped only if its EventAcquired is dropped.
const (
	EventAcquired      EventKind = iota + 1 // a lock was granted; Took is the time since Acquire was called
	EventWaiting                            // an Acquire began to wait, or a store that has served the client now refuses it; Err says why
	EventRenewed                            // a lease was renewed; Took is the round trip
	EventSuspect                            // a renewal failed, or the backend is down; Err says why
	EventLost                               // a lease was lost; Err is the cause
	EventReleased                           // a lease was released; Err is set if that was not confirmed
	EventPluginDown                         // the plugin process ended
	EventPluginUp                           // a new plugin process serves
	EventAcquireFailed                      // Acquire, TryAcquire or Campaign returned Err; Took is the time since the call
	EventOpened                             // New made the client
	EventWaitFailed                         // waits in the store fail, so an Acquire asks at intervals (at most one event a minute); Err says why
)

var eventNames = []string{
	EventAcquired: "acquired", EventWaiting: "waiting", EventRenewed: "renewed", EventSuspect: "suspect",
	EventLost: "lost", EventReleased: "released", EventPluginDown: "plugin down", EventPluginUp: "plugin up",
	EventAcquireFailed: "acquire failed", EventOpened: "opened",
	EventWaitFailed: "wait failed",
}

// String returns the kind in lower-case words, such as "plugin down".
func (k EventKind) String() string { return nameOf(eventNames, k) }

func nameOf[K ~int](names []string, k K) string {
	if k < 1 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

func (k EventKind) level(err error) slog.Level {
	switch k {
	case EventSuspect, EventLost, EventPluginDown, EventPluginUp, EventWaitFailed:
		return slog.LevelWarn
	case EventWaiting:
		if !errors.Is(err, ErrHeld) { // the store is unreachable, or refuses this client
			return slog.LevelWarn
		}
	}
	return slog.LevelDebug
}

// Event is one thing that happened to a lease, to the plugin, or to the client.
// Name, Owner, Label and Token are empty in events of the plugin and the client.
type Event struct {
	Kind EventKind
	Time time.Time // when the event happened, not when it is delivered
	// Context never ends. Its values come from the ctx of the operation that caused the event. An
	// event without an operation, such as a renewal or a loss, has the values of the acquire's ctx.
	// Events of the plugin and the client have context.Background().
	Context                     context.Context
	Backend, Name, Owner, Label string
	Token                       uint64
	Took                        time.Duration
	// In EventRenewed, Slack is the time that the lease had left when the renewal was confirmed. A
	// lease whose Slack shrinks towards zero will soon be lost. Slack is zero for the first renewal
	// after a short grant (see driver.Grant).
	Slack time.Duration
	Err   error
	// Dropped is the number of events that were dropped between the previous event and this one.
	// Events are dropped if too many already wait because Logger or OnEvent is slow or blocks.
	Dropped uint64
}

// maxEvents is the largest number of events that may wait to be delivered. If about ten thousand
// leases are renewed at once, the renewals make nearly as many events.
const maxEvents = 16 << 10

// levelEvery is the interval at which the client asks the logger whether Debug is enabled.
const levelEvery = time.Second

// emitter delivers events to the logger and to OnEvent, in order, from one goroutine. Close waits
// for that goroutine as its last step; no other method waits for it.
type emitter struct {
	c     *Client
	log   *slog.Logger
	on    func(Event)
	queue *deliver.Queue[Event]

	// routine says whether the logger enables Debug. The client stores the logger's answer, so that
	// the hot path need not call the logger, which is code of the application and may block.
	routine atomic.Bool
	askAt   atomic.Int64 // instant of the next call of Enabled; during a call, the largest instant

	unlogged uint64 // dropped events that no log record counts yet; only deliver uses this field
}

func (e *emitter) init(c *Client) {
	e.c, e.log, e.on = c, c.opts.Logger, c.opts.OnEvent
	e.queue = deliver.New(maxEvents, e.deliver)
	e.routine.Store(e.log.Enabled(context.Background(), slog.LevelDebug))
}

func (e *emitter) wants(kind EventKind, err error) bool {
	return e.on != nil || e.routine.Load() || kind.level(err) > slog.LevelDebug
}

// ask asks the logger whether Debug is enabled, if its last answer is older than levelEvery.
func (e *emitter) ask(now instant) {
	at := e.askAt.Load()
	if e.on != nil || int64(now) < at || !e.askAt.CompareAndSwap(at, math.MaxInt64) {
		return
	}
	go func() {
		e.routine.Store(e.log.Enabled(context.Background(), slog.LevelDebug))
		e.askAt.Store(int64(e.c.clock.now().add(levelEvery)))
	}()
}

// add queues an event, and reports whether the event will be delivered. add
// never blocks, and may be called while mutexes of the client are held.
func (e *emitter) add(ev Event) bool {
	return e.wants(ev.Kind, ev.Err) && e.queue.Add(e.complete(ev), 1)
}

// addEnd queues the event of a lease's end. If known is true, the event of the lease's grant was
// queued, and addEnd never drops the event of the lease's end. Without that event, a reader of the
// events would count an ended lease as held.
func (e *emitter) addEnd(ev Event, known bool) {
	if known && e.wants(ev.Kind, ev.Err) {
		e.queue.Force(e.complete(ev), 1)
		return
	}
	e.add(ev)
}

func (e *emitter) complete(ev Event) Event {
	if ev.Context == nil {
		ev.Context = context.Background()
	}
	ev.Time, ev.Backend, ev.Context = time.Now(), e.c.name, context.WithoutCancel(ev.Context)
	return ev
}

func (e *emitter) deliver(ev Event, dropped uint64) {
	if own := (callbackOf{e.c}); ev.Context.Value(own) != nil {
		// The key own marks the ctx of a callback. Close refuses such a ctx, because Close waits for
		// callbacks. OnEvent may call Close with ev.Context, so ev.Context must not have the key.
		ev.Context = context.WithValue(ev.Context, own, nil)
	}
	ev.Dropped = dropped
	e.unlogged += dropped
	if level := ev.Kind.level(ev.Err); e.log.Enabled(ev.Context, level) {
		r := slog.NewRecord(ev.Time, level, ev.Kind.String(), 0)
		r.AddAttrs(ev.attrs()...)
		if e.unlogged > 0 {
			r.AddAttrs(slog.Uint64("dropped", e.unlogged))
			e.unlogged = 0
		}
		_ = e.log.Handler().Handle(ev.Context, r) // ignored, because no caller could receive the error
	}
	if e.on != nil {
		e.on(ev)
	}
}

func (ev Event) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("backend", ev.Backend)}
	if ev.Name != "" {
		attrs = append(attrs, slog.String("name", ev.Name), slog.String("owner", ev.Owner), slog.String("label", ev.Label))
	}
	if ev.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", ev.Token))
	}
	if ev.Took != 0 {
		attrs = append(attrs, slog.Duration("took", ev.Took))
	}
	if ev.Err != nil {
		attrs = append(attrs, slog.Any("err", ev.Err))
	}
	return attrs
}
