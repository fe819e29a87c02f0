package redisnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// pingEvery is the shortest time between two pings of a silent connection.
const pingEvery = 2 * time.Second

// Wakeups is the pub/sub connection of a Node. The first use opens it. One channel is for the
// Node's waiters. Each message on it names an owner, and says that this owner was granted the lock
// or should ask for it. Each observed lock has a channel for the lock's changes.
//
// When the connection breaks, all waiters and observers are woken: a message may have been lost.
type Wakeups struct {
	client    goredis.UniversalClient
	channel   string
	pingEvery time.Duration

	background *kit.Group

	mu      sync.Mutex
	started bool
	pubsub  *goredis.PubSub                       // nil while not subscribed
	waiters map[string]*waiting                   // by owner
	signing bool                                  // whether the method signs runs
	changes map[string]map[chan struct{}]struct{} // listeners by channel
	link    Link
	moved   kit.Broadcast // signalled at each change of link
}

// Link is the state of the connection.
type Link struct {
	Up    bool
	Err   error // why the connection is not up; nil before the first attempt has ended
	Tried bool  // an attempt to connect has failed since the connection was last up
	Epoch int   // rises with every change of the state
}

func newWakeups(client goredis.UniversalClient, o Options) *Wakeups {
	return &Wakeups{
		client: client, channel: o.Keys.side() + "i:" + o.ID, pingEvery: max(pingEvery, o.PingEvery), background: kit.NewGroup(),
		waiters: map[string]*waiting{}, changes: map[string]map[chan struct{}]struct{}{},
	}
}

// Link returns the state of the connection, and a channel that is closed when
// the state changes. It opens the connection if necessary.
func (w *Wakeups) Link() (Link, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start()
	return w.link, w.moved.Next()
}

// start is called with mu held.
func (w *Wakeups) start() {
	if !w.started {
		w.started = w.background.Go(func() { w.run(w.background) })
	}
}

// Ready waits until the connection is up and returns Link.Epoch. If an attempt
// to connect has failed, it returns the error.
func (w *Wakeups) Ready(ctx context.Context) (epoch int, err error) {
	for {
		link, moved := w.Link()
		switch {
		case w.background.Err() != nil:
			return 0, driver.ErrClosed
		case link.Up:
			return link.Epoch, nil
		case link.Tried:
			return 0, Explain(link.Err)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, ctx.Err())
		}
	}
}

// run keeps the connection open until ctx ends. If the connection breaks, run makes a new one.
func (w *Wakeups) run(ctx context.Context) {
	const first, most, refused = 10 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second
	for pause := time.Duration(0); ; {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			err = driver.ErrClosed
		}
		wasUp := w.down(err)
		if ctx.Err() != nil {
			return
		}
		if wasUp && time.Since(began) > most {
			pause = 0 // reconnect at once, because perhaps only this connection was cut
			continue
		}
		limit := most
		if errors.Is(Explain(err), driver.ErrDenied) {
			limit = refused // a longer pause, during which waiters poll
		}
		pause = min(2*pause+first, limit)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
	}
}

// session runs one connection, from its subscription to its end.
//
// Note: do not let PubSub reconnect by itself, because it does not report a reconnection. A waiter
// whose message was lost before the reconnection would then not be woken.
func (w *Wakeups) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, closeWithContext{}, true))
	defer cancel()
	ps := w.client.Subscribe(ctx)
	defer ps.Close()
	if err := ps.Subscribe(ctx, w.channel); err != nil {
		return err
	}
	swept := time.Now()
	for silent := 0; ; {
		msg, err := ps.ReceiveTimeout(ctx, w.pingEvery)
		switch {
		case err == nil:
			silent = 0
		case TimedOut(err) && silent < 2 && ctx.Err() == nil:
			silent++
			if err := ps.Ping(ctx); err != nil {
				return err
			}
		default:
			return err
		}
		if time.Since(swept) > lostAfter {
			w.forgetLost()
			swept = time.Now()
		}
		if err := w.receive(ctx, ps, msg); err != nil {
			return err
		}
	}
}

func (w *Wakeups) receive(ctx context.Context, ps *goredis.PubSub, msg any) error {
	switch m := msg.(type) {
	case *goredis.Subscription:
		if m.Kind == "subscribe" && m.Channel == w.channel {
			return w.up(ctx, ps)
		}
		w.wakeObservers(m.Channel)
	case *goredis.Message:
		if m.Channel != w.channel {
			w.wakeObservers(m.Channel)
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.push(m.Payload)
	}
	return nil
}

func (w *Wakeups) up(ctx context.Context, ps *goredis.PubSub) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pubsub = ps
	w.move(Link{Up: true})
	if len(w.changes) == 0 {
		return nil
	}
	return ps.Subscribe(ctx, slices.Collect(maps.Keys(w.changes))...)
}

func (w *Wakeups) down(err error) (wasUp bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pubsub = nil
	wasUp = w.link.Up
	w.move(Link{Err: err, Tried: !wasUp})
	for _, wt := range w.waiters {
		kit.Wake(wt.woken)
	}
	for _, listeners := range w.changes {
		for l := range listeners {
			kit.Wake(l)
		}
	}
	return wasUp
}

// move is called with mu held.
func (w *Wakeups) move(to Link) {
	to.Epoch = w.link.Epoch + 1
	w.link = to
	w.moved.Up()
}
