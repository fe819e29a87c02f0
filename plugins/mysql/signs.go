package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

const (
	// signsGoOn is how long signs of life go on after the last wait began.
	signsGoOn = 2 * time.Second
	// signWithin is how long the answer to a sign may take.
	signWithin = kit.LongestSpan
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
//
// That session takes many trips to dial, and no waiter may stay out of the
// queue for so long. Until the first sign stands, a waiter's entry is one, and
// the waiter polls as if it had found no connection to wait on.
type signs struct {
	process  string // its id in the queue
	distance kit.Distance

	mu      sync.Mutex
	s       *conn.Session    // used by run alone; nil while there is none
	last    statement.Signed // the sign that it holds; of run alone
	gone    bool             // its server has ended it
	stands  bool             // the last try has given one
	err     error            // of the last try
	tried   chan struct{}    // closed after the next try
	waited  time.Time        // when a waiter last began to wait
	running bool
}

func newProcess() string { return strconv.FormatUint(rand.Uint64()|1<<63, 36) }

// begin has signs given from now on, if there are none, and returns the name of
// the lock that is never free. It is empty where SLEEP will do. While no sign stands
// it returns a channel that is closed after the next try, and why the last try failed.
func (d *signs) begin(k *link) (lock string, tried <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waited = time.Now()
	if !d.running {
		d.err, d.tried = nil, make(chan struct{})
		d.running = k.background.Go(func() { d.run(k) })
	}
	switch {
	case !d.stands || d.gone || k.stale(d.s):
		return "", d.tried, d.err
	case !d.s.Server.MariaDB:
		return "", nil, nil
	}
	return conn.WakeName(d.s.WakeID), nil, nil
}

// by is what an entry says of this process.
func (d *signs) by() statement.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return statement.Process{ID: d.process, Signs: d.stands, Ahead: d.ahead()}
}

// ahead is in how many parts of the server's time more than near ones a sign of this
// process counts: by as much longer as the store grants it a lock for.
func (d *signs) ahead() uint64 {
	return uint64((d.distance.FirstSpan() - kit.FirstSpan) / statement.SignEvery)
}

// run gives signs until no waiter has come for a while.
func (d *signs) run(k *link) {
	tick := time.NewTicker(statement.SignEvery)
	defer tick.Stop()
	for more := true; more; {
		err := d.give(k)
		if err != nil {
			k.opts.Logger.Debug("mysql: a sign of life", "err", err)
		}
		d.mu.Lock()
		d.running = time.Since(d.waited) < signsGoOn && k.background.Err() == nil
		more = d.running
		d.err, d.stands = err, err == nil && more
		close(d.tried)
		d.tried = make(chan struct{})
		d.mu.Unlock()
		if more {
			select {
			case <-tick.C:
			case <-k.background.Done():
			}
		}
	}
}

// give gives one sign, over a new connection where there is none.
func (d *signs) give(k *link) (err error) {
	d.mu.Lock()
	s := d.s
	if s != nil && (d.gone || k.stale(s)) {
		d.s, d.stands = nil, false
	}
	use := d.s
	d.gone = false
	d.mu.Unlock()
	if s != nil && use == nil {
		s.Close()
	}
	if use == nil {
		d.last = statement.Signed{}
		if use, err = k.pool.Dial(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(k.background, signWithin)
	defer cancel()
	now, sent := statement.Signed{Ahead: d.ahead()}, time.Now()
	err = use.Query(ctx, statement.Sign(d.process, now.Ahead, d.last), func(v []sqldriver.Value) error {
		now.Part = conn.Uint(v[0])
		return nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		use.Close()
		d.s, d.stands = nil, false
		return err
	}
	d.distance.Took(time.Since(sent))
	d.s, d.last = use, now
	return nil
}

// lost is called when the lock of that name was free, because its session is gone.
func (d *signs) lost(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = d.gone || d.s != nil && conn.WakeName(d.s.WakeID) == name
}

// close is called when run has ended.
func (d *signs) close() {
	if d.s != nil {
		d.s.Close()
	}
}
