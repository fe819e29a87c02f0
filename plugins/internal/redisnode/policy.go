package redisnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

// Evicts returns an error when the server may delete a lock that is held, so
// that nothing must be granted on it. Leases that are held can be renewed: one
// that was deleted is lost then.
func (s Server) Evicts(addr string) error {
	if s.policy == "" || s.policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("%w: %w: %s has maxmemory-policy %s, which may delete a lock that is held; set it to noeviction (in a managed service by a parameter group of your own)",
		driver.ErrDenied, driver.ErrNotSent, addr, s.policy)
}

// ReadAgain asks the server s about what may change while its connections live:
// what it does when its memory is full, and whether it is a master. INFO
// shows it, because managed servers hide CONFIG.
func (s Server) ReadAgain(ctx context.Context, c processor) (Server, error) {
	args := []any{"info"}
	if s.major >= 7 { // an older one takes one section, or none for all
		args = append(args, "memory", "replication")
	}
	info := goredis.NewStringCmd(ctx, args...)
	if err := c.Process(ctx, info); err != nil {
		return Server{}, Explain(err)
	}
	return parseServer(info.Val(), nil), nil
}

// PolicyEvery is how often [Server.ReadAgain] is asked.
const PolicyEvery = time.Second

// policies has the servers of a store on which nothing must be granted.
type policies struct {
	looking  sync.Mutex // keeps an older answer from coming after a newer one
	mu       sync.Mutex
	verdicts map[string]error // by server, as its clients and connections call themselves
}

// Judge notes what was found out about the server of a client or a connection: why
// nothing must be granted on it, or nil. Acquires are refused while that is so of
// one server. An error that does not wrap driver.ErrDenied is no answer, and
// changes nothing.
func (n *Node) Judge(server fmt.Stringer, verdict error) {
	n.policies.mu.Lock()
	defer n.policies.mu.Unlock()
	switch {
	case verdict == nil:
		delete(n.policies.verdicts, server.String())
	case errors.Is(verdict, driver.ErrDenied):
		n.policies.verdicts[server.String()] = verdict
	}
	n.refuseAsJudged()
}

// keepJudged forgets what was found out about other servers than these.
func (n *Node) keepJudged(servers map[string]bool) {
	n.policies.mu.Lock()
	defer n.policies.mu.Unlock()
	maps.DeleteFunc(n.policies.verdicts, func(server string, _ error) bool { return !servers[server] })
	n.refuseAsJudged()
}

func (n *Node) refuseAsJudged() {
	servers := slices.Sorted(maps.Keys(n.policies.verdicts))
	if len(servers) == 0 {
		n.Refuse(nil)
		return
	}
	n.Refuse(n.policies.verdicts[servers[0]]) // errors name the whole store: one says enough
}

// LookAgain refuses grants while a master may delete a lock that is held; errors
// call the store addr. It leaves the connections to a server that is a master no
// more. Of a master that does not answer its last answer
// counts, until it is a master no more: so it neither hides what another one
// does, nor keeps up a refusal that is another one's.
//
// Note: of a master that is away the last answer must count. One that was only
// frozen goes on with what its connections have sent it.
func (n *Node) LookAgain(ctx context.Context, known Server, addr string) {
	n.policies.looking.Lock()
	defer n.policies.looking.Unlock()
	var mu sync.Mutex
	masters := map[string]bool{}
	err := n.eachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		mu.Lock()
		masters[c.String()] = true
		mu.Unlock()
		sent := time.Now()
		s, err := known.ReadAgain(ctx, c)
		if n.opts.Links != nil && (s.Replica() || Astray(err)) {
			n.opts.Links.Leave(sent)
			return nil
		}
		if err == nil {
			err = s.Evicts(addr)
		}
		n.Judge(c, err)
		return nil
	})
	if err == nil {
		n.keepJudged(masters)
	}
}
