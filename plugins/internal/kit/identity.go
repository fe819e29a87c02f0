package kit

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Identity tracks which server an address leads to. Several servers may stand
// behind one name: by a balancer, two records, or a failover that cut no
// connection. Two that serve at the same time would grant every lock twice. So
// all connections of one backend lead to one server, and other servers are
// refused while that one serves.
//
// It sees the connections of one process. Two hosts, each with another server,
// do not notice each other.
//
// Its methods may be called from any goroutine.
type Identity struct {
	Addr string // for errors and logs
	Log  *slog.Logger

	asking sync.Mutex // held while the current server is asked
	mu     sync.Mutex
	server string
	warned string // the server that the last warning was about
	refuse error  // the last refusal
	at     time.Time
}

// refusedFor is how long [Identity.Err] returns a refusal.
const refusedFor = time.Minute

// Admit decides about a new connection to server, a name that is unique and
// changes with a restart. An unknown server, "", is admitted, and the first
// server becomes the current one. For another server Admit calls serves, which
// reports whether the current one still serves; it asks a connection that
// exists and makes none. If so, the connection must be closed, and the error
// wraps driver.ErrUnavailable and driver.ErrNotSent. If not, the new server
// becomes current. A connection to a server that is not [Identity.Current] must
// not be used again.
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

// Current returns the server whose connections may be used, "" before the first.
func (i *Identity) Current() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

// Err returns the last refusal that the current server made in the last minute,
// for a backend's Check.
func (i *Identity) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.refuse == nil || time.Since(i.at) > refusedFor {
		return nil
	}
	return i.refuse
}
