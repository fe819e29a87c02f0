package kit

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Identity tracks which server an address leads to. One address may lead to several servers,
// because of a load balancer, two DNS records, or a failover that cut no connection. If a backend
// used two servers at the same time, a lock could be granted twice. So while the backend's current
// server serves, an Identity refuses connections to other servers.
//
// An Identity sees only the connections of one process. If two hosts are
// connected to different servers, neither host notices that.
//
// Any number of goroutines may call the methods.
type Identity struct {
	Addr string // for errors and logs
	Log  *slog.Logger

	asking sync.Mutex // locked while Admit asks whether the current server serves
	mu     sync.Mutex
	server string
	warned string // the server that the last warning was about
	refuse error  // the last refusal
	at     time.Time
}

// Admit decides whether a new connection to a server may be used. The server's unique name (server)
// changes with a restart. Admit accepts a server without a name (""). The first server with a name
// becomes the current server. For any other server, Admit calls the function serves, which reports
// by an existing connection whether the current server still serves. If it does, Admit's error
// wraps driver.ErrUnavailable and driver.ErrNotSent, and the caller must close the new connection.
// Otherwise the new server becomes current, and the caller must give up the old connections.
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

// Current returns the name of the server that may be used, or "" if there is none yet.
func (i *Identity) Current() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

// Err returns the error of Admit's last refusal after the given time (since). It returns nil if
// there was no such refusal, or if another server became current after it.
func (i *Identity) Err(since time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.at.After(since) {
		return i.refuse
	}
	return nil
}

// Recent returns the error of Admit's last refusal in the last minute; see Err.
func (i *Identity) Recent() error { return i.Err(time.Now().Add(-time.Minute)) }
