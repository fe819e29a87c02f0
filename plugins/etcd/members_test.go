package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
)

func three(t *testing.T) (servers.Nodes, Options) {
	t.Helper()
	members, err := etcdserver.StartCluster(t.Context(), 3, nil)
	servers.Keep(t, "etcd", members, err)
	return members, Options{Address: members.Addrs()}
}

func leader(t *testing.T, members []*servers.Server) int {
	t.Helper()
	found := -1
	eventually(t, "one leads", func() bool {
		for i, m := range members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			status, err := plain(t, m).Status(ctx, m.Addr())
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				found = i
			}
		}
		return found >= 0
	})
	return found
}

// The sits function makes the backend b use the member at addr, which must exist.
func sits(t *testing.T, b *Backend, addr string) {
	t.Helper()
	if !b.cluster.Prefer("http://" + addr) {
		t.Fatalf("no member %s", addr)
	}
}

// Close must release a host's locks, whose TTL is long, even if the host's member is frozen.
func TestReleaseWithFrozenMember(t *testing.T) {
	members, o := three(t)
	ill := members[(leader(t, members)+1)%3]
	b := connect(t, o)
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprint("jobs-", i))
		l, err := c.Lock(names[i], &core.LockOptions{TTL: time.Minute})
		must(t, err)
		_, err = l.Acquire(t.Context())
		must(t, err)
	}
	sits(t, b, ill.Addr())
	must(t, b.Check(t.Context()))
	must(t, ill.Freeze())
	defer func() { must(t, ill.Resume()) }()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	healthy := members[leader(t, members)]
	other := connect(t, on(healthy))
	for _, n := range names {
		if h, err := other.Inspect(t.Context(), n); err != nil || h.Held() {
			t.Errorf("%s after its host has closed: %+v, %v", n, h, err)
		}
	}
}

// TestMemberWithoutAnswer checks that requests to a frozen member go to another member. If
// a request must not be done twice, the caller must soon learn that its outcome is unknown.
func TestMemberWithoutAnswer(t *testing.T) {
	members, o := three(t)
	ill := members[(leader(t, members)+1)%3]
	b := connect(t, o)
	sits(t, b, ill.Addr())
	held := acquire(t, b, lock("held", "a"))
	must(t, ill.Freeze())
	defer func() { must(t, ill.Resume()) }()
	ctx, cancel := context.WithTimeout(t.Context(), b.cluster.RequestTimeout())
	defer cancel()
	if _, err := b.TryAcquire(ctx, lock("jobs", "a")); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) || ctx.Err() != nil {
		t.Errorf("acquire from a frozen member: %v", err)
	}
	must(t, b.Withdraw(t.Context(), "jobs", "a")) // goes to another member
	acquire(t, b, lock("jobs", "b"))
	must(t, b.Renew(t.Context(), held))

	b = connect(t, o)
	sits(t, b, ill.Addr())
	if _, err := b.Inspect(t.Context(), "jobs"); err != nil {
		t.Errorf("a read that one member does not answer: %v", err)
	}
}

// TestMemberWithoutLeader checks a member that is cut off from the other members. That member
// executes no request, and its errors must say so at once.
func TestMemberWithoutLeader(t *testing.T) {
	peers := &etcdserver.Peers{}
	t.Cleanup(func() { must(t, peers.Close()) })
	members, err := etcdserver.StartCluster(t.Context(), 3, &etcdserver.Options{Peers: peers})
	servers.Keep(t, "etcd", members, err)
	ill := (leader(t, members) + 1) % 3
	b := connect(t, on(members[ill]))
	acquire(t, b, lock("warm", "a"))
	peers.CutOff(ill, true)
	eventually(t, "it has noticed", func() bool {
		status, err := plain(t, members[ill]).Status(t.Context(), members[ill].Addr())
		return err == nil && status.Leader == 0
	})
	began := time.Now()
	if _, err := b.TryAcquire(t.Context(), lock("jobs", "a")); !errors.Is(err, driver.ErrNotSent) || time.Since(began) > time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	peers.CutOff(ill, false)
	eventually(t, "it is one of them again", func() bool {
		_, err := b.TryAcquire(t.Context(), lock("jobs", "b"))
		return err == nil
	})
}

// rotated returns the addresses of members, beginning with that of members[first].
func rotated(members servers.Nodes, first int) []string {
	addrs := members.Addrs()
	return append(addrs[first:len(addrs):len(addrs)], addrs[:first]...)
}

// TestBalancer puts a load balancer in front of three members. It then cuts off the host's member
// from the other two members. The host must renew its lease in time over a new connection, which
// leads to another member.
func TestBalancer(t *testing.T) {
	t.Parallel() // most of its time is waiting
	peers := &etcdserver.Peers{}
	t.Cleanup(func() { must(t, peers.Close()) })
	members, err := etcdserver.StartCluster(t.Context(), 3, &etcdserver.Options{Peers: peers})
	servers.Keep(t, "etcd", members, err)
	ill := (leader(t, members) + 1) % 3
	b := connect(t, Options{Address: []string{balancer(t, rotated(members, ill)...)}})
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	l, err := c.Lock("held", &core.LockOptions{TTL: 10 * time.Second})
	must(t, err)
	held, err := l.TryAcquire(t.Context())
	must(t, err)
	peers.CutOff(ill, true)
	eventually(t, "it has noticed", func() bool {
		status, err := plain(t, members[ill]).Status(t.Context(), members[ill].Addr())
		return err == nil && status.Leader == 0
	})
	noticed := time.Now()
	must(t, acquireFree(t, c))
	eventually(t, "it is renewed", func() bool {
		if err := held.Err(); err != nil {
			t.Fatalf("the lease was lost: %v", err)
		}
		return held.Deadline().After(noticed.Add(15 * time.Second))
	})
	must(t, c.Close(t.Context()))
}

func acquireFree(t *testing.T, c *core.Client) error {
	t.Helper()
	l, err := c.Lock("free", nil)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.Release(t.Context())
}

// TestBalancerWithLearner checks that the backend replaces a connection that leads to a learner.
func TestBalancerWithLearner(t *testing.T) {
	s := start(t, nil)
	c := core.New(connect(t, Options{Address: []string{balancer(t, learner(t, s).Addr(), s.Addr())}}),
		&core.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, acquireFree(t, c))
	must(t, c.Close(t.Context()))
}

// learner starts a learner (a member without a vote) in the cluster of the server s.
func learner(t *testing.T, s *servers.Server) *servers.Server {
	t.Helper()
	port, err := ports.Take(1)
	must(t, err)
	t.Cleanup(func() { must(t, port.Close()) })
	operator, url := plain(t, s), "http://"+port.Addr(0)
	members, err := operator.MemberList(t.Context())
	must(t, err)
	_, err = operator.MemberAddAsLearner(t.Context(), []string{url})
	must(t, err)
	return start(t, &etcdserver.Options{Args: []string{
		"--name=learner", "--listen-peer-urls=" + url, "--initial-advertise-peer-urls=" + url,
		"--initial-cluster=" + members.Members[0].Name + "=" + members.Members[0].PeerURLs[0] + ",learner=" + url, "--initial-cluster-state=existing",
	}})
}
