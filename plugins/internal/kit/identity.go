package kit

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Identity is which server an address leads to. Behind one name there may be
// several: a balancer, a name with two records, a failover that cut no
// connection. Two of them that serve at the same time would grant every lock
// twice, so the connections of one backend lead to one server, and what another
// one has to offer is refused while that one serves.
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

// refusedFor is how long [Identity.Err] tells of a refusal.
const refusedFor = time.Minute

// Admit decides about a new connection to server, a name that no other server
// has and that its restart changes; "" is not known, and admitted. The first
// server becomes the current one. For another one serves is called, which reports whether
// the current server still serves; it asks a connection that exists and makes none.
// When it does, the connection must be closed, and the error wraps
// driver.ErrUnavailable and driver.ErrNotSent. When it does not, the new server
// takes its place: a connection to a server that is not [Identity.Current] must
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

// Err returns the last refusal of the current server's last minute, for a
// backend's Check.
func (i *Identity) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.refuse == nil || time.Since(i.at) > refusedFor {
		return nil
	}
	return i.refuse
}
