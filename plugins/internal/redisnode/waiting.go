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
	// refreshEvery is how long a place in the queue is trusted without asking the
	// store; the scripts keep it longer.
	refreshEvery = time.Second

	// lostAfter is when a waiter whose owner was neither granted nor withdrawn is
	// forgotten.
	lostAfter = 10 * time.Second

	// maxEntryValue is the longest published value that stands in the queue. The
	// queue is read with each request for its lock.
	maxEntryValue = 512
)

// waiting is an owner's place in the queue as this instance knows it. It
// outlives a single wait, so that a push that comes between two waits is not lost.
type waiting struct {
	lock   string        // its key
	woken  chan struct{} // filled when the owner was granted the lock or should ask again
	queued time.Time     // when the store was last known to have it
	epoch  int           // of the connection then
	seen   time.Time     // the owner's last Wait or request
	grant  pushed
	later  *time.Timer // fills woken; nil while nothing has to be asked later
}

// pushed is a grant that the store has pushed; zero for none. See lua/queue.lua.
type pushed struct {
	token uint64
	sign  time.Duration // the sign of life that the store had seen
	span  time.Duration
}

// Wait queues r.Owner and returns when the lock was granted to it or when it
// should ask again. woken reports whether a push said so. Wait also returns
// after most, or when moved is closed.
//
// The queue is in the store. A push is lost with its connection, and then every
// waiter is woken. It may also be lost with the queue, which a waiter enters
// again after refreshEvery.
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

// enqueue enters r.Owner into the queue of r.Name, and reports whether the lock
// is free and it is that owner's turn. Where releases grant, a push says so
// instead. left is the rest of the holder's lease, or zero if unknown.
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

// entry is what stands in the queue for r behind its owner, whose TTL is for how long
// the store may grant the lock; see lua/queue.lua.
// A value that is too long comes with the first request of the owner, which then
// has to ask before it may use the grant.
func entry(process string, r driver.Request) string {
	value := r.Value
	if len(value) > maxEntryValue {
		value = nil
	}
	return process + " " + strconv.FormatInt(r.TTL.Milliseconds(), 10) + " " + entryText.Replace(ValueTail(r.Label, value))
}

var entryText = strings.NewReplacer("%", "%0", "\n", "%1")

// take returns the grant that was pushed to r.Owner, once. It returns zero, so
// that the owner asks, if there is no grant, its time is over, replicas must
// have it first, or nothing must be granted.
func (n *Node) take(r driver.Request) driver.Grant {
	n.Wakeups.mu.Lock()
	defer n.Wakeups.mu.Unlock()
	wt := n.Wakeups.waiters[r.Owner]
	if wt == nil {
		return driver.Grant{}
	}
	p := wt.grant
	wt.grant = pushed{}
	// The present is read first, because a pause of this thread between the two
	// readings then makes the sign older.
	now := time.Now()
	age := sinceBoot() - p.sign
	if p.token == 0 || age < 0 || age >= p.span || n.opts.WaitReplicas > 0 || len(r.Value) > maxEntryValue || n.Refusal() != nil {
		return driver.Grant{}
	}
	n.Wakeups.forget(r.Owner)
	return driver.Grant{Token: p.token, Sent: now.Add(-age), For: p.span}
}

// enter returns the place of r.Owner, and has the store hear of this process
// where that decides who is granted the lock.
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

// Leave forgets owner after a grant or a withdrawal.
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

// refused notes that a request sent at the instant sent found the lock taken,
// and whether owner was in the queue.
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

// entered notes that owner was entered into the queue by a request sent at the
// instant sent, over the connection of epoch.
func (w *Wakeups) entered(owner string, sent time.Time, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil {
		wt.queued, wt.epoch = sent, epoch
	}
}

// inQueue reports whether owner is surely still in the queue: the store said so
// lately, over the connection that would still bring its push. A wait then
// needs no request, because a grant would have been pushed.
func (w *Wakeups) inQueue(wt *waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link.Up && wt.epoch == w.link.Epoch && time.Since(wt.queued) < refreshEvery
}

// forgetLost drops the places of owners that were never granted or withdrawn.
func (w *Wakeups) forgetLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for owner, wt := range w.waiters {
		if time.Since(wt.seen) > lostAfter {
			w.forget(owner)
		}
	}
}

// push delivers what the store has told one waiter: "OWNER" that it should ask,
// "OWNER MS" that it should do so then, "OWNER TOKEN SIGN MS" that it was granted
// the lock. It is called with mu held.
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
	// signEvery is how often a process with waiters gives a sign of life, unless
	// a round trip takes longer. A sign stands for signFor, because its travel
	// time varies, and longer where the store may grant a lock for more than the
	// first span.
	signEvery = 200 * time.Millisecond
	signFor   = 2 * signEvery

	// signsGoOn is how long signs keep a place after its owner last waited or
	// asked.
	signsGoOn = 2 * time.Second
)

// started is where sinceBoot begins on a system without such a clock.
var started = time.Now()

// sign returns a sign of life as the scripts take it: the process, the time of
// sending by this machine's clock, which no other machine reads, and how many
// milliseconds it stands. The clock goes on while the machine is suspended.
func (n *Node) sign() []any {
	stands := signFor + n.distance.FirstSpan() - kit.FirstSpan
	return []any{n.opts.ID, sinceBoot().Microseconds(), stands.Milliseconds()}
}

// signs gives signs of life while this process has waiters, one for each
// control string; a Cluster has one string a slot. No sign waits for the answer
// to the one before, but signs must leave room for other requests.
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

// waitedFor returns, for each control string, one lock that has a waiter. The
// signs end when there is none.
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

// giveSign gives one sign of life. If the sign before had expired, places may
// be lost, and their waiters are woken to find out.
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
