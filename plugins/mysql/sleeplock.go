package mysql

import (
	"sync"

	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// sleepLock is a lock that is never free: to wait for it is to sleep. It is the
// wake id of a session of its own, one for all waiters of a backend.
//
// MariaDB needs it. All that run its SLEEP share one mutex, and a KILL QUERY
// that meets it taken can lock up with its target: then every SLEEP of the
// server goes on for two seconds, and so do the kills (10.11; with 40 sleepers
// killed one after the other it was 2 to 5 rounds in 100, and none in 600 with
// GET_LOCK). MySQL's GET_LOCK knows whole seconds only, and its SLEEP does not
// suffer from that.
type sleepLock struct {
	mu   sync.Mutex
	s    *conn.Session
	name string
}

// needed reports whether k's server has SLEEPs that wait for each other.
func (d *sleepLock) needed(k *link) bool {
	now := k.server.Load()
	return now != nil && now.MariaDB
}

// ready reports whether make is done at once.
func (d *sleepLock) ready(k *link) bool {
	if !d.mu.TryLock() {
		return false // somebody is making the connection
	}
	defer d.mu.Unlock()
	return d.s != nil && !k.stale(d.s) || !d.needed(k)
}

// make returns the lock's name. It is empty where SLEEP will do.
func (d *sleepLock) make(k *link) (name string, err error) {
	if !d.needed(k) {
		return "", nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.s != nil && !k.stale(d.s) {
		return d.name, nil
	}
	if d.s != nil {
		d.s.Close()
		d.s = nil
	}
	s, err := k.pool.Dial()
	if err != nil {
		return "", err
	}
	d.s, d.name = s, conn.WakeName(s.WakeID)
	return d.name, nil
}

// lost is called when the lock of that name was free: its session is gone.
func (d *sleepLock) lost(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.s != nil && d.name == name {
		d.s.Close()
		d.s = nil
	}
}

func (d *sleepLock) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.s != nil {
		d.s.Close()
		d.s = nil
	}
}
