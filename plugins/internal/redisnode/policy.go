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
	return fmt.Errorf("%w: %w: %s has maxmemory-policy %s, which may delete a lock that is held; set it to noeviction",
		driver.ErrDenied, driver.ErrNotSent, addr, s.policy)
}

// ReadPolicy asks a server what it does when its memory is full. It can be
// changed at any time, which breaks no connection. INFO shows it, because
// managed servers hide CONFIG.
func ReadPolicy(ctx context.Context, c processor) (Server, error) {
	info := goredis.NewStringCmd(ctx, "info", "memory")
	if err := c.Process(ctx, info); err != nil {
		return Server{}, Explain(err)
	}
	return parseServer(info.Val(), nil), nil
}

// PolicyEvery is how often [ReadPolicy] is asked.
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

// LookAtPolicy refuses grants while a master may delete a lock that is held;
// errors call the store addr. Of a master that does not answer its last answer
// counts, until it is a master no more: so it neither hides what another one
// does, nor keeps up a refusal that is another one's.
//
// Note: of a master that is away the last answer must count. One that was only
// frozen goes on with what its connections have sent it.
func (n *Node) LookAtPolicy(ctx context.Context, addr string) {
	n.policies.looking.Lock()
	defer n.policies.looking.Unlock()
	var mu sync.Mutex
	masters := map[string]bool{}
	err := n.eachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		mu.Lock()
		masters[c.String()] = true
		mu.Unlock()
		s, err := ReadPolicy(ctx, c)
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
