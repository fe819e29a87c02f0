package redisnode

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	// signEvery is how often a process that waits gives a sign of life; each stands
	// for signFor.
	signEvery = 200 * time.Millisecond
	signFor   = 2 * signEvery

	// signsGoOn is for how long after its owner last waited or asked a place is kept
	// by signs.
	signsGoOn = 2 * time.Second
)

// started is where sinceBoot begins on a system without such a clock.
var started = time.Now()

// sign is a sign of life as the scripts take it: of which process, when it was
// sent by the clock of this machine, which no other reads, and for how many
// milliseconds it stands. The clock goes on while the machine is suspended.
func (n *Node) sign() []any {
	return []any{n.opts.ID, sinceBoot().Microseconds(), signFor.Milliseconds()}
}

// signs gives signs of life while somebody waits: one for each control string,
// of which a Cluster has one a slot. None waits for the answer of the one before.
func (n *Node) signs() {
	w := n.Wakeups
	tick := time.NewTicker(signEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.background.Done():
			return
		case <-tick.C:
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

// waitedFor returns a lock that somebody waits for, for each control string. When
// there is none, the signs end.
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

// giveSign gives one. When the one before stood no more, places may be lost, and
// those who had them are woken to find out.
func (n *Node) giveSign(lock string) {
	w := n.Wakeups
	ctx, cancel := context.WithTimeout(w.background, signFor)
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
