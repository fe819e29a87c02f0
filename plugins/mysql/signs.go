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
	// signsGoOn is how long signs of life continue after the start of the last wait.
	signsGoOn = 2 * time.Second
	// signWithin is how long the answer to a sign may take.
	signWithin = kit.LongestSpan
)

// signs shows the server that this process lives while it waits. Every
// [statement.SignEvery], a session used only for this runs a statement that takes a
// user lock named after the present time. Signs say only which waiters may be granted a
// lock; the waiter reads the length of the grant from the row. When the session ends,
// its signs end too, so a process that has died is passed over at once.
//
// Note: three designs were rejected. A sign in the row of each lock, or in a row
// for signs, costs five commits a second. A MEMORY table needs a right to create
// it, and each release that reads the table keeps it locked while the release waits
// for its row. An open connection does not show that a process is frozen.
//
// The session's wake id is a user lock that is never free, so a waiter sleeps by
// waiting for this lock. MariaDB needs this, because all sessions that run its SLEEP
// share one mutex. A KILL QUERY that finds the mutex taken can deadlock with its
// target; then every SLEEP of the server goes on for two seconds, and so do the kills.
// (On MariaDB 10.11, when 40 sleepers were killed one after the other, this happened in
// 2 to 5 rounds of 100. With GET_LOCK it happened in none of 600 rounds.) MySQL's
// GET_LOCK knows only whole seconds, and its SLEEP does not have this problem.
//
// The session takes many round trips to dial, and a waiter must enter the queue
// earlier. Until the first sign is given, a waiter's queue entry counts as a
// sign, and the waiter polls as if there were no connection to wait on.
type signs struct {
	process  string // this process's id in the queue
	distance kit.Distance

	mu      sync.Mutex
	s       *conn.Session    // used only by run; nil while there is none
	last    statement.Signed // the sign that s holds; used only by run
	gone    bool             // the server has ended s
	stands  bool             // the last try has given a sign
	err     error            // error of the last try
	tried   chan struct{}    // closed after the next try
	waited  time.Time        // when a waiter last began to wait
	running bool
}

func newProcess() string { return strconv.FormatUint(rand.Uint64()|1<<63, 36) }

// begin makes sure that signs are given from now on, and returns the name of the user lock
// that is never free. The name is empty where SLEEP is used. While no sign is valid, begin
// returns a channel that is closed after the next try, and the error of the last try.
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

// by returns what a queue entry says about this process.
func (d *signs) by() statement.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return statement.Process{ID: d.process, Signs: d.stands, Ahead: d.ahead()}
}

// ahead returns how many parts of the server's time longer than usual a sign of
// this process counts, because the store also grants it a lock for longer.
func (d *signs) ahead() uint64 {
	return uint64((d.distance.FirstSpan() - kit.FirstSpan) / statement.SignEvery)
}

// run gives signs until no waiter has come for signsGoOn.
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

// give gives one sign, over a new connection if necessary.
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

// lost notes that the user lock called name was free, because the session that gives signs is gone.
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
