package redisnode

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	// refreshEvery is the time for which a waiter counts as queued after its last request. The scripts
	// keep a waiter's place for longer.
	refreshEvery = time.Second

	// This process remembers a waiter for at least lostAfter after the last Wait or request of its
	// owner. After a grant or a withdrawal, the process forgets the waiter at once.
	lostAfter = 10 * time.Second

	// maxEntryValue is the longest published value, in bytes, that the queue stores. The limit is
	// small because every acquire and release of the lock reads the whole queue.
	maxEntryValue = 512
)

// waiting is what this process knows about an owner's place in the queue. It is kept between two
// calls of Wait, so that the owner misses no message from the store.
type waiting struct {
	lock   string        // the lock's key
	woken  chan struct{} // gets a signal when the owner was granted the lock or should ask again
	queued time.Time     // when the place was last known to be in the store
	epoch  int           // Link.Epoch at the time queued
	seen   time.Time     // the owner's last Wait or request
	grant  pushed
	later  *time.Timer // wakes the owner after a delay; nil if there is none
}

// pushed is a grant that the store has pushed; the zero value means no grant. See lua/queue.lua.
type pushed struct {
	token uint64
	sign  time.Duration // sinceBoot at the last sign of life that the store had seen
	span  time.Duration
}

// Wait puts r.Owner into the queue. It returns when the store has granted r.Owner the lock, or when
// r.Owner should ask for the lock again. It also returns after a limited time (most), or when a
// channel (moved) is closed. The result woken is true if it is r.Owner's turn, or if a message from
// the store (a push) came or may have been lost.
//
// The queue is in the store. A push may be lost when the connection breaks, so a broken connection
// wakes every waiter. A store that loses the queue sends no push, so waiters enter the queue again
// after refreshEvery.
func (n *Node) Wait(ctx context.Context, r driver.Request, most time.Duration, moved <-chan struct{}) (woken bool, g driver.Grant, err error) {
	over := time.Now().Add(most)
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		place, queued := n.enter(r)
		if !queued {
			free, left, err := n.enqueue(ctx, r)
			if free || err != nil {
				return free, g, err
			}
			if left > 0 {
				end.Reset(min(time.Until(over), left+time.Millisecond))
			}
		}
		select {
		case <-place.woken:
			return true, n.take(r), nil
		case <-end.C:
			return false, g, nil
		case <-moved:
			return false, g, nil
		case <-ctx.Done():
			return false, g, ctx.Err()
		case <-time.After(refreshEvery):
		}
	}
}

// enqueue puts r.Owner into the store's queue. The result free is true if the lock is free and
// r.Owner is first in the queue. If the queue grants locks, free is always false, because a push
// reports the grant. The result left is the rest of the holder's lease, or 0 if that is not known.
func (n *Node) enqueue(ctx context.Context, r driver.Request) (free bool, left time.Duration, err error) {
	epoch, err := n.Wakeups.Ready(ctx)
	if err != nil {
		return false, 0, err
	}
	r.TTL = min(r.TTL, n.distance.FirstSpan())
	args := append([]any{r.Owner, entry(n.opts.ID, r)}, n.sign()...)
	sent := time.Now()
	reply, err := n.call(ctx, n.invoke(cmp.Or(n.opts.Turns, waitScript), []string{n.opts.Keys.Lock(r.Name)}, true, args))
	if err != nil {
		return false, 0, err
	}
	number, ok := reply.(int64)
	if !ok {
		return false, 0, decode(r.Name, reply).Err
	}
	n.Wakeups.entered(r.Owner, sent, epoch)
	if number > 0 {
		left = ttl(number)
	}
	return number < 0, left, nil
}

// entry returns the text that follows r.Owner in the queue; see lua/queue.lua. A grant by the store
// lasts at most r.TTL. If r.Value is too long for the queue, the text lacks it. The owner must then
// call TryAcquire, which sends the value, before it uses a grant.
func entry(process string, r driver.Request) string {
	value := r.Value
	if len(value) > maxEntryValue {
		value = nil
	}
	return process + " " + strconv.FormatInt(r.TTL.Milliseconds(), 10) + " " + entryText.Replace(ValueTail(r.Label, value))
}

var entryText = strings.NewReplacer("%", "%0", "\n", "%1")

// take returns a grant that was pushed to r.Owner, but only once. It returns the zero Grant if
// there is none, the grant has expired, replicas must confirm it, r.Value is too long for the
// queue, or acquires are refused now.
func (n *Node) take(r driver.Request) driver.Grant {
	n.Wakeups.mu.Lock()
	defer n.Wakeups.mu.Unlock()
	wt := n.Wakeups.waiters[r.Owner]
	if wt == nil {
		return driver.Grant{}
	}
	p := wt.grant
	wt.grant = pushed{}
	// time.Now is read before sinceBoot. If this thread pauses between the two readings, the grant
	// only seems to end earlier, which is safe.
	now := time.Now()
	age := sinceBoot() - p.sign
	if p.token == 0 || age < 0 || age >= p.span || n.opts.WaitReplicas > 0 || len(r.Value) > maxEntryValue || n.Refusal() != nil {
		return driver.Grant{}
	}
	n.Wakeups.forget(r.Owner)
	return driver.Grant{Token: p.token, Sent: now.Add(-age), For: p.span}
}

// enter returns what this process knows about r.Owner's place in the queue. If the queue grants
// locks, enter also starts the signs of life of this process.
//
// The result queued reports whether the owner is certainly in the queue. The store must have
// confirmed that within the last refreshEvery, and the connection for pushes must not have broken
// since then. If so, Wait sends no request, because the store will send a push.
func (n *Node) enter(r driver.Request) (wt *waiting, queued bool) {
	w := n.Wakeups
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt = w.waiters[r.Owner]; wt == nil {
		wt = &waiting{lock: n.opts.Keys.Lock(r.Name), woken: make(chan struct{}, 1)}
		w.waiters[r.Owner] = wt
	}
	wt.seen = time.Now()
	if n.opts.Turns == nil && !w.signing {
		w.signing = w.background.Go(n.signs)
	}
	return wt, w.link.Up && wt.epoch == w.link.Epoch && time.Since(wt.queued) < refreshEvery
}

// Leave forgets the owner's place in the queue. Call it after a grant or a withdrawal.
func (w *Wakeups) Leave(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(owner)
}

// forget is called with mu held.
func (w *Wakeups) forget(owner string) {
	if wt := w.waiters[owner]; wt != nil && wt.later != nil {
		wt.later.Stop()
	}
	delete(w.waiters, owner)
}

// refused records that an acquire by the owner found the lock held. The parameter sent is when the
// acquire was sent. The parameter queued says whether the store found the owner in the queue.
func (w *Wakeups) refused(owner string, sent time.Time, queued bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wt := w.waiters[owner]
	if wt == nil {
		return
	}
	wt.seen = sent
	switch {
	case !queued:
		wt.queued = time.Time{}
	case wt.epoch == w.link.Epoch:
		wt.queued = sent
	}
}

// entered records that a request has put the owner into the queue. The parameter sent is when the
// request was sent. The owner's pushes come over the connection with this Link.Epoch.
func (w *Wakeups) entered(owner string, sent time.Time, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil {
		wt.queued, wt.epoch = sent, epoch
	}
}

func (w *Wakeups) forgetLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for owner, wt := range w.waiters {
		if time.Since(wt.seen) > lostAfter {
			w.forget(owner)
		}
	}
}

// push delivers the store's message to one waiter. "OWNER" means that the owner should ask for the
// lock now. "OWNER MS" means that it should ask after MS milliseconds. "OWNER TOKEN SIGN MS" is a
// grant to the owner for MS milliseconds. push is called with mu held.
func (w *Wakeups) push(text string) {
	f := strings.Fields(text)
	if len(f) == 0 || w.waiters[f[0]] == nil {
		return
	}
	wt := w.waiters[f[0]]
	ms, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
	span := time.Duration(ms) * time.Millisecond
	switch len(f) {
	case 2:
		if wt.later != nil {
			wt.later.Stop()
		}
		wt.later = time.AfterFunc(span+time.Millisecond, func() { kit.Wake(wt.woken) })
		return
	case 4:
		token, err := strconv.ParseUint(f[1], 10, 64)
		sign, signErr := strconv.ParseInt(f[2], 10, 64)
		if err == nil && signErr == nil && token > wt.grant.token {
			wt.grant = pushed{token: token, sign: time.Duration(sign) * time.Microsecond, span: span}
		}
	}
	kit.Wake(wt.woken)
}

const (
	// signEvery is the interval between two signs of life of a process with waiters, unless a round
	// trip takes longer. A sign is valid for signFor, which is longer than signEvery because travel
	// times vary. If the store is far away, both signs and grants to waiters are valid longer.
	signEvery = 200 * time.Millisecond
	signFor   = 2 * signEvery

	// signsGoOn is how long signs of life continue after the last Wait or request of an owner.
	signsGoOn = 2 * time.Second
)

// started is the zero time of sinceBoot on a system without CLOCK_BOOTTIME.
var started = time.Now()

// sign returns a sign of life as three arguments of a script: the process, the time of sending in
// microseconds, and the validity in milliseconds. The time is from sinceBoot, because this clock
// also runs while the machine is suspended.
func (n *Node) sign() []any {
	stands := signFor + n.distance.FirstSpan() - kit.FirstSpan
	return []any{n.opts.ID, sinceBoot().Microseconds(), stands.Milliseconds()}
}

// signs sends signs of life while this process has waiters. One sign counts for all locks or, in a
// Cluster, for all locks in one slot. The interval between two signs is at least a round trip.
func (n *Node) signs() {
	w := n.Wakeups
	for {
		select {
		case <-w.background.Done():
			return
		case <-time.After(max(signEvery, n.distance.Trip())):
		}
		locks := n.waitedFor()
		if len(locks) == 0 {
			return
		}
		for _, lock := range locks {
			w.background.Go(func() { n.giveSign(lock) })
		}
	}
}

// waitedFor returns the key of one lock that has a waiter. In a Cluster, it returns one such key
// for each slot. The map's keys are the locks' control keys.
func (n *Node) waitedFor() map[string]string {
	w := n.Wakeups
	w.mu.Lock()
	defer w.mu.Unlock()
	locks := map[string]string{}
	for _, wt := range w.waiters {
		if time.Since(wt.seen) < signsGoOn {
			locks[n.opts.Keys.control(wt.lock)] = wt.lock
		}
	}
	w.signing = len(locks) > 0
	return locks
}

// giveSign sends one sign of life. If the previous sign had expired, the store may have removed
// waiters from queues. So giveSign wakes the waiters, and they ask again.
func (n *Node) giveSign(lock string) {
	w := n.Wakeups
	ctx, cancel := context.WithTimeout(w.background, kit.LongestSpan)
	defer cancel()
	reply, err := n.call(ctx, n.invoke(signScript, []string{lock}, false, n.sign()))
	if err != nil || reply != int64(0) {
		return
	}
	control := n.opts.Keys.control(lock)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wt := range w.waiters {
		if n.opts.Keys.control(wt.lock) == control {
			kit.Wake(wt.woken)
		}
	}
}
