package redisnode

import (
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

	// lostAfter is the shortest time for which this process remembers a waiter after the owner's last
	// wait or request. After a grant or a withdrawal, it forgets the waiter at once.
	lostAfter = 10 * time.Second

	// maxEntryValue is the longest published value, in bytes, that the queue stores. The limit is
	// small because every acquire and release of the lock reads the whole queue.
	maxEntryValue = 512
)

// waiting is an owner's place in the queue as this instance knows it. It is kept between two calls
// of Wait, so that no message from the store is lost in between.
type waiting struct {
	lock   string        // the lock's key
	woken  chan struct{} // receives when the owner was granted the lock or should ask again
	queued time.Time     // when the store was last known to have the place
	epoch  int           // Link.Epoch of the connection at that time
	seen   time.Time     // the owner's last Wait or request
	grant  pushed
	later  *time.Timer // wakes the owner to ask later; nil if there is no need
}

// pushed is a grant that the store has pushed; the zero value means no grant. See lua/queue.lua.
type pushed struct {
	token uint64
	sign  time.Duration // sinceBoot at the last sign of life that the store had seen
	span  time.Duration
}

// Wait puts r.Owner into the queue. It returns when the store has granted r.Owner the lock, when
// r.Owner should ask again, after the duration most, or when the channel moved is closed. woken is
// true if it is r.Owner's turn, or if a push (a message from the store) came or may have been lost.
//
// The queue is in the store. A push is lost when its connection breaks, so a
// broken connection wakes every waiter. A push is also lost when the store
// loses the queue, so waiters enter the queue again after refreshEvery.
func (n *Node) Wait(ctx context.Context, r driver.Request, most time.Duration, moved <-chan struct{}) (woken bool, g driver.Grant, err error) {
	over := time.Now().Add(most)
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		place := n.enter(r)
		if !n.Wakeups.inQueue(place) {
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

// The result free reports whether the lock is free and r.Owner is the first in the queue. If the
// queue grants locks, free is always false, because a push tells the waiter of its grant. The
// result left is the remaining time of the holder's lease, or 0 if this time is not known.
func (n *Node) enqueue(ctx context.Context, r driver.Request) (free bool, left time.Duration, err error) {
	epoch, err := n.Wakeups.Ready(ctx)
	if err != nil {
		return false, 0, err
	}
	script, args := n.opts.Turns, []any{r.Owner, n.opts.ID}
	if script == nil {
		r.TTL = min(r.TTL, n.distance.FirstSpan())
		script, args = waitScript, append([]any{r.Owner, entry(n.opts.ID, r)}, n.sign()...)
	}
	sent := time.Now()
	reply, err := n.call(ctx, n.invoke(script, []string{n.opts.Keys.Lock(r.Name)}, true, args))
	if err != nil {
		return false, 0, err
	}
	number, ok := reply.(int64)
	if !ok {
		return false, 0, decode(r.Name, reply).Err
	}
	n.Wakeups.entered(r.Owner, sent, epoch)
	if n.opts.Turns == nil && number > 0 {
		left = ttl(number)
	}
	return n.opts.Turns != nil && number == 1, left, nil
}

// entry returns the text that follows r.Owner in the queue; see lua/queue.lua. A grant by the store
// lasts at most r.TTL. A published value that is too long for the queue is left out. The owner must
// then call TryAcquire, which sends the value, before it may use the grant.
func entry(process string, r driver.Request) string {
	value := r.Value
	if len(value) > maxEntryValue {
		value = nil
	}
	return process + " " + strconv.FormatInt(r.TTL.Milliseconds(), 10) + " " + entryText.Replace(ValueTail(r.Label, value))
}

var entryText = strings.NewReplacer("%", "%0", "\n", "%1")

// take returns r.Owner's pushed grant once. It returns the zero Grant if no grant came, the grant
// expired, replicas must confirm it, r's value was too long to queue, or acquires are refused now.
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

// enter returns r.Owner's place in the queue, as this instance knows it. It also starts this
// process's signs of life if the store needs them to choose the next owner.
func (n *Node) enter(r driver.Request) *waiting {
	w := n.Wakeups
	w.mu.Lock()
	defer w.mu.Unlock()
	wt := w.waiters[r.Owner]
	if wt == nil {
		wt = &waiting{lock: n.opts.Keys.Lock(r.Name), woken: make(chan struct{}, 1)}
		w.waiters[r.Owner] = wt
	}
	wt.seen = time.Now()
	if n.opts.Turns == nil && !w.signing {
		w.signing = w.background.Go(n.signs)
	}
	return wt
}

// Leave forgets the owner's place in the queue, after a grant or a withdrawal.
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

// refused notes that a request of owner found the lock taken. The parameter sent is when
// the request was sent, and queued says whether owner was in the queue.
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

// entered notes that a request has put owner into the queue. The parameter sent is when
// the request was sent, and epoch says which connection will bring owner's pushes.
func (w *Wakeups) entered(owner string, sent time.Time, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil {
		wt.queued, wt.epoch = sent, epoch
	}
}

// inQueue reports whether the owner of wt is surely in the queue. The store must have confirmed
// that within refreshEvery, and the connection for pushes must not have broken since. Wait then
// sends no request for this owner, because the store would push a grant.
func (w *Wakeups) inQueue(wt *waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link.Up && wt.epoch == w.link.Epoch && time.Since(wt.queued) < refreshEvery
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
	// times vary. If the store is far away, so that its grants to waiters last longer, signs are valid
	// for longer too.
	signEvery = 200 * time.Millisecond
	signFor   = 2 * signEvery

	// signsGoOn is the time for which signs of life go on after an owner's last wait or request.
	signsGoOn = 2 * time.Second
)

// started is the origin of sinceBoot on a system without CLOCK_BOOTTIME.
var started = time.Now()

// sign returns a sign of life as the arguments of a script: the process, the time of sending in
// microseconds, and the milliseconds for which the sign is valid. The time of sending is from a
// clock of this machine that also runs while the machine sleeps.
func (n *Node) sign() []any {
	stands := signFor + n.distance.FirstSpan() - kit.FirstSpan
	return []any{n.opts.ID, sinceBoot().Microseconds(), stands.Milliseconds()}
}

// signs sends signs of life while this process has waiters: one for all locks or, in a
// Cluster, one for each slot that has waiters. It does not wait for the reply to a sign, but the
// interval between two signs is at least a round trip.
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

// waitedFor returns the key of one lock with a waiter or, in a Cluster, one for each slot with such
// locks. The map is indexed by the locks' control keys.
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
