package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

const (
	// signsGoOn is for how long after somebody last waited signs of life are given.
	signsGoOn = 2 * time.Second
	// signWithin is how long the answer to one may take.
	signWithin = time.Second
)

// signs are by what the server knows that this process lives while it waits: every
// [statement.SignEvery] a statement, of a session that is for nothing else, holds a user lock
// that is named after the present. They say only who may be granted a lock; for how
// long, the waiter reads from the row. A session that ends takes its signs with
// it: a process that has died is passed over at once.
//
// Note: a sign in the row of each lock, or in a row of its own, is five commits a
// second; a MEMORY table is locked by each release that reads it for as long as that
// waits for its row, and needs a right to create it; a connection that is open
// says nothing of a process that is frozen.
//
// The session's wake id is a lock that is never free: to wait for it is to sleep.
// MariaDB needs it. All that run its SLEEP share one mutex, and a KILL QUERY
// that meets it taken can lock up with its target: then every SLEEP of the
// server goes on for two seconds, and so do the kills (10.11; with 40 sleepers
// killed one after the other it was 2 to 5 rounds in 100, and none in 600 with
// GET_LOCK). MySQL's GET_LOCK knows whole seconds only, and its SLEEP does not
// suffer from that.
type signs struct {
	process string // its id in the queue

	mu      sync.Mutex
	s       *conn.Session
	last    uint64    // the part of the server's time of the last sign
	waited  time.Time // when somebody last began to wait
	running bool
}

func newProcess() string { return strconv.FormatUint(rand.Uint64()|1<<63, 36) }

// begin has signs given from now on, if there are none, and returns the name of
// the lock that is never free. It is empty where SLEEP will do.
func (d *signs) begin(k *link) (lock string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waited = time.Now()
	if !d.running || d.s == nil || k.stale(d.s) {
		if err := d.give(k); err != nil {
			return "", err
		}
	}
	if !d.running {
		d.running = k.background.Go(func() { d.run(k) })
	}
	if !d.s.Server.MariaDB {
		return "", nil
	}
	return conn.WakeName(d.s.WakeID), nil
}

// run gives signs until nobody has waited for a while.
func (d *signs) run(k *link) {
	tick := time.NewTicker(statement.SignEvery)
	defer tick.Stop()
	for more := true; more; {
		select {
		case <-tick.C:
		case <-k.background.Done():
		}
		d.mu.Lock()
		d.running = time.Since(d.waited) < signsGoOn && k.background.Err() == nil
		if more = d.running; more {
			if err := d.give(k); err != nil {
				k.opts.Logger.Debug("mysql: a sign of life", "err", err)
			}
		}
		d.mu.Unlock()
	}
}

// give gives one, over a new connection where there is none. It is called with mu
// held.
func (d *signs) give(k *link) (err error) {
	if d.s != nil && k.stale(d.s) {
		d.end()
	}
	if d.s == nil {
		if d.s, err = k.pool.Dial(); err != nil {
			d.s = nil
			return err
		}
	}
	ctx, cancel := context.WithTimeout(k.background, signWithin)
	defer cancel()
	err = d.s.Query(ctx, statement.Sign(d.process, d.last), func(v []sqldriver.Value) error {
		d.last = conn.Uint(v[1])
		return nil
	})
	if err != nil {
		d.end()
	}
	return err
}

// end ends the session. It is called with mu held.
func (d *signs) end() {
	if d.s != nil {
		d.s.Close()
		d.s, d.last = nil, 0
	}
}

// lost is called when the lock of that name was free: its session is gone.
func (d *signs) lost(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.s != nil && conn.WakeName(d.s.WakeID) == name {
		d.end()
	}
}

func (d *signs) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}
