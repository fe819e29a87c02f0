package cluster

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	// slowAfter is the time after which an unanswered request makes the Cluster check which members
	// answer.
	slowAfter = 250 * time.Millisecond
	// askNext is the time that poll waits for the answer of the member in use before it also asks
	// the other members. If the member in use does not answer within sickAfter, and another member
	// answers, the other member replaces it.
	askNext   = 150 * time.Millisecond
	sickAfter = 500 * time.Millisecond
	// electedGrace is the time for which a request that was sent before a change of leader may still
	// wait for its answer.
	electedGrace = 300 * time.Millisecond
)

// These are reasons why a request ended before its answer. The server may have done the request.
var (
	errSick     = errors.New("etcd: this member did not answer, and another one did")
	errSilent   = errors.New("etcd: nothing comes over this connection")
	errAstray   = errors.New("etcd: this connection led to a member that cannot serve")
	errStranger = errors.New("etcd: this member is of another cluster")
	errElected  = errors.New("etcd: no answer, and the cluster has another leader since")
)

// member is one server.
type member struct {
	endpoint string
	dial     chan struct{}        // held by the caller that logs in
	conn     atomic.Pointer[conn] // nil until the member is used
}

// Prefer is for tests. It makes the cluster use the member at endpoint until
// that member fails, and reports whether there is such a member.
func (c *Cluster) Prefer(endpoint string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.all {
		if m.endpoint == endpoint {
			c.move(m, 0)
			return true
		}
	}
	return false
}

// avoid makes m the last member to try, because it has failed.
func (c *Cluster) avoid(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.move(m, len(c.all)-1)
}

// move moves the member m to index i of the order. The caller holds mu.
func (c *Cluster) move(m *member, i int) {
	others := slices.DeleteFunc(slices.Clone(c.all), func(o *member) bool { return o == m })
	copy(c.all, slices.Insert(others, i, m))
}

// order returns the member in use, and then the others in the order in which to try them.
func (c *Cluster) order() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func (c *Cluster) leave(old, next *member, why error) {
	c.mu.Lock()
	if c.all[0] == old {
		c.move(next, 0)
	}
	c.move(old, len(c.all)-1)
	c.mu.Unlock()
	c.opts.Logger.Warn("etcd: another member is used from now on", "instead of", old.endpoint, "member", next.endpoint, "error", why)
	if conn := old.conn.Load(); conn != nil {
		c.forsake(conn, 0, errSick)
	}
}

// redial connects to m anew if a new connection may lead to a member that serves, because m
// answers that it has no leader or is a learner (decision etcd-22), or because nothing at all comes
// over the old connection (etcd-17). The parameter err is m's error, or nil if no answer came.
func (c *Cluster) redial(m *member, err error) {
	conn := m.conn.Load()
	if conn == nil {
		return
	}
	age := time.Since(conn.made)
	switch {
	case declined(err):
		if age >= downPause/2 { // half the pause between two checks
			c.astray(conn, err)
		}
		return
	case age < c.opts.DialTimeout:
		return
	}
	ctx, cancel := context.WithTimeout(c.background, sickAfter)
	defer cancel()
	status, err := pb.NewMaintenanceClient(conn.link).Status(ctx, &pb.StatusRequest{})
	switch {
	case err == nil && (status.Leader == 0 || status.IsLearner):
		c.astray(conn, rpctypes.ErrNoLeader)
	case err != nil && ctx.Err() != nil && c.background.Err() == nil && c.forsake(conn, 0, errSilent):
		c.opts.Logger.Warn("etcd: connects anew to a member that is silent", "member", m.endpoint)
	}
}

// astray takes conn out of use after its member has answered that it cannot serve. Requests may
// still end (see renew), because an election may be under way. Watches end when conn is closed.
func (c *Cluster) astray(conn *conn, why error) {
	c.opts.Logger.Debug("etcd: connects anew to a member that cannot serve", "member", conn.member.endpoint, "error", why)
	c.forsake(conn, c.opts.RequestTimeout, nil)
	conn.renew(errAstray)
}

// seeTerm records the leader's term from an answer. If the term has risen, requests that the
// earlier leader got may be lost, and the server may not say so for seven seconds.
func (c *Cluster) seeTerm(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term <= c.term {
		return
	}
	first := c.term == 0
	c.term = term
	if conn := c.all[0].conn.Load(); conn != nil && !first {
		conn.renew(errElected)
	}
}
