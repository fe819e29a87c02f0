package core

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// EventKind says what an [Event] is about.
type EventKind int

// The kinds of events. Each lease has exactly one EventAcquired, and one
// EventReleased or EventLost. An attempt on an open client that returns no
// lease has one EventAcquireFailed.
const (
	EventAcquired      EventKind = iota + 1 // a lock was granted; Took is since Acquire was called
	EventWaiting                            // an Acquire began to wait; Err tells for what
	EventRenewed                            // a lease was renewed; Took is the round trip
	EventSuspect                            // a renewal failed, or the backend is down; Err tells why
	EventLost                               // a lease was lost; Err is the cause
	EventReleased                           // a lease was released; Err is set when that could not be confirmed
	EventPluginDown                         // the plugin process ended
	EventPluginUp                           // a new plugin process serves
	EventAcquireFailed                      // Acquire, TryAcquire or Campaign returned Err; Took is since the call
)

var eventNames = [...]string{
	EventAcquired: "acquired", EventWaiting: "waiting", EventRenewed: "renewed", EventSuspect: "suspect",
	EventLost: "lost", EventReleased: "released", EventPluginDown: "plugin down", EventPluginUp: "plugin up",
	EventAcquireFailed: "acquire failed",
}

// String returns the kind in lower-case words, "plugin down".
func (k EventKind) String() string {
	if k < 1 || int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

func (k EventKind) level() slog.Level {
	switch k {
	case EventSuspect, EventLost, EventPluginDown, EventPluginUp:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Event is one thing that happened to a lease or to the plugin. Name, Owner,
// Label and Token are empty for events of the plugin.
type Event struct {
	Kind                        EventKind
	Time                        time.Time
	Backend, Name, Owner, Label string
	Token                       uint64
	Took                        time.Duration
	// Slack is set for EventRenewed: how much of the lease was left when the
	// renewal was confirmed. One that shrinks towards zero is soon lost.
	Slack time.Duration
	Err   error
}

// emitter delivers events one at a time, in order, without a goroutine of its
// own and without holding a lock of the client meanwhile.
type emitter struct {
	log     *slog.Logger
	on      func(Event)
	backend string

	pending atomic.Bool
	mu      sync.Mutex
	queue   []Event
	busy    bool
}

// wants tells whether anybody would see an event of this kind.
func (e *emitter) wants(kind EventKind) bool {
	return e.on != nil || e.log.Enabled(context.Background(), kind.level())
}

// add queues an event. It may be called under the client's locks; flush must
// follow without them.
func (e *emitter) add(ev Event) {
	if !e.wants(ev.Kind) {
		return
	}
	ev.Time, ev.Backend = time.Now(), e.backend
	e.mu.Lock()
	e.queue = append(e.queue, ev)
	e.pending.Store(true)
	e.mu.Unlock()
}

// flush delivers what is queued, unless another goroutine is doing so: it will
// take these events too. OnEvent may therefore call the client.
func (e *emitter) flush() {
	if !e.pending.Load() {
		return
	}
	e.mu.Lock()
	if e.busy {
		e.mu.Unlock()
		return
	}
	e.busy = true
	for len(e.queue) > 0 {
		events := e.queue
		e.queue = nil
		e.mu.Unlock()
		for _, ev := range events {
			e.deliver(ev)
		}
		e.mu.Lock()
	}
	e.busy = false
	e.pending.Store(false)
	e.mu.Unlock()
}

func (e *emitter) deliver(ev Event) {
	if ctx := context.Background(); e.log.Enabled(ctx, ev.Kind.level()) {
		e.log.LogAttrs(ctx, ev.Kind.level(), ev.Kind.String(), ev.attrs()...)
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
