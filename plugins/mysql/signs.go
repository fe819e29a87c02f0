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
	// After its last waiter has begun to wait, a process gives signs of life for another signsGoOn.
	signsGoOn = 2 * time.Second
	// signWithin is the time that the server may take to answer the statement that gives a sign.
	signWithin = kit.LongestSpan
)

// signs gives signs of life, which show the server that this process lives while it waits for
// locks. Every 200 ms, a session used only for signs takes a user lock named after the process and
// the time. The store grants a lock to a waiter only if the waiter's process has a valid sign. When
// a process dies, its session and signs end, so the store skips its waiters.
//
// Note: three other kinds of sign were rejected. A row that each process updates costs five commits
// a second. A MEMORY table needs a right to create it, and a release that reads this table keeps
// the table locked while the release waits for a row lock. An open connection does not show that a
// process is frozen.
//
// The session holds a second user lock, named after its wake id. On MariaDB a waiter sleeps by
// waiting for this lock, which is never free. A waiter on MariaDB must not use SLEEP, because all
// sessions that run SLEEP share one mutex. A KILL QUERY that finds the mutex taken can deadlock
// with the SLEEP that it should end. After a deadlock, each SLEEP and KILL on the server takes two
// seconds. In rounds of 40 kills on MariaDB 10.11, SLEEP led to a deadlock in 2 to 5 of 100 rounds,
// and GET_LOCK in none of 600. On MySQL waiters use SLEEP, because MySQL's GET_LOCK waits for
// whole seconds only, and its SLEEP has no such mutex.
//
// Dialing the session takes many round trips, but a waiter must enter the queue at once. Until
// the first sign is given, a waiter's queue entry counts as a sign, and the waiter polls.
type signs struct {
	process  string // this process's id in the queue
	distance kit.Distance

	mu      sync.Mutex
	s       *conn.Session    // used only by run; nil while there is none
	last    statement.Signed // the sign that s holds; used only by run
	gone    bool             // the server has ended s
	stands  bool             // the last try to give a sign has succeeded
	err     error            // error of the last try
	tried   chan struct{}    // closed after the next try
	waited  time.Time        // when a waiter last began to wait
	running bool
}

func newProcess() string { return strconv.FormatUint(rand.Uint64()|1<<63, 36) }

// begin starts the signs of life if needed, and returns the name of the user lock that a waiter
// waits for. The name is empty if waiters use SLEEP. While no sign is valid, begin returns a
// channel that is closed after the next try to give a sign, and the error of the last try.
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

func (d *signs) by() statement.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return statement.Process{ID: d.process, Signs: d.stands, Ahead: d.ahead()}
}

// The method ahead returns how much longer than usual a sign is valid because the server is far
// away, in units of SignEvery. Grants to waiters of this process are longer by the same time.
func (d *signs) ahead() uint64 {
	return uint64((d.distance.FirstSpan() - kit.FirstSpan) / statement.SignEvery)
}

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

// give gives one sign of life, over a new session if the old one is gone.
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

// lost records that the named user lock was free. If d.s took that lock, the server has ended d.s.
func (d *signs) lost(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = d.gone || d.s != nil && conn.WakeName(d.s.WakeID) == name
}

// The close method must be called only after run has ended.
func (d *signs) close() {
	if d.s != nil {
		d.s.Close()
	}
}
