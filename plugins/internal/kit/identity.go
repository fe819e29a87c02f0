package kit

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Identity tracks which server an address leads to. One name may lead to several servers, because
// of a load balancer, two DNS records, or a failover that cut no connection. If two servers were in
// use at the same time, a lock could be granted twice. So all connections of one backend lead to
// one server, and other servers are refused while that server serves.
//
// An Identity sees only the connections of one process. If two hosts are
// connected to different servers, neither host notices that.
//
// Its methods may be called from any goroutine.
type Identity struct {
	Addr string // for errors and logs
	Log  *slog.Logger

	asking sync.Mutex // locked while the current server is asked whether it serves
	mu     sync.Mutex
	server string
	warned string // the server that the last warning was about
	refuse error  // the last refusal
	at     time.Time
}

// Admit decides about a new connection. The parameter server is the server's unique name, which
// changes with a restart. Admit accepts a server whose name is unknown (""), and makes the first
// server with a name the current one. For another server it calls the function serves, which asks
// over an existing connection whether the current server still serves. If it does, Admit's error
// wraps driver.ErrUnavailable and driver.ErrNotSent, and the caller must close the new connection.
// Otherwise the new server becomes current, and connections to the old one must not be used again.
func (i *Identity) Admit(server string, serves func() bool) error {
	if server == "" || server == i.Current() {
		return nil
	}
	i.asking.Lock()
	defer i.asking.Unlock()
	was := i.Current()
	refused := was != "" && was != server && serves()
	i.mu.Lock()
	defer i.mu.Unlock()
	if !refused {
		if was != "" && was != server {
			cmp.Or(i.Log, slog.Default()).Info("the address leads to another server", "address", i.Addr, "was", was, "is", server)
		}
		i.server, i.warned, i.refuse = server, "", nil
		return nil
	}
	i.at = time.Now()
	i.refuse = fmt.Errorf("%w: %w: %s leads to two servers, %s and %s, and the former, which is in use, still serves: every lock would be granted twice; the address must lead to one",
		driver.ErrUnavailable, driver.ErrNotSent, i.Addr, was, server)
	if i.warned != server {
		i.warned = server
		cmp.Or(i.Log, slog.Default()).Warn("the address leads to two servers, and the one in use still serves; connections to the other are refused",
			"address", i.Addr, "in use", was, "other", server)
	}
	return i.refuse
}

// Current returns the server whose connections may be used, or "" if no server was admitted yet.
func (i *Identity) Current() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

// Err returns the error of Admit's last refusal. It returns nil if this refusal was not after the
// time since, or if another server has become current later.
func (i *Identity) Err(since time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.at.After(since) {
		return i.refuse
	}
	return nil
}

// Recent is like Err for refusals in the last minute. A backend's Check calls it.
func (i *Identity) Recent() error { return i.Err(time.Now().Add(-time.Minute)) }
