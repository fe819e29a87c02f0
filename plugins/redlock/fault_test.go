package redlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// cutOff freezes nodes, and returns when the backend b sends them no more requests. So the nodes
// execute no request that b makes after cutOff, even when they resume.
func cutOff(t testing.TB, b *Backend, nodes servers.Nodes) {
	t.Helper()
	for _, s := range nodes {
		must(t, s.Freeze())
		eventually(t, "the frozen node is left out", func() bool {
			_, err := b.Inspect(t.Context(), "~")
			must(t, err)
			return !nodeAt(b, s).votes()
		})
	}
}

func nodeAt(b *Backend, s *servers.Server) *node {
	for _, n := range b.nodes {
		if n.addr == s.Addr() {
			return n
		}
	}
	return nil
}

func voting(t testing.TB, b *Backend, nodes ...*servers.Server) {
	t.Helper()
	for _, s := range nodes {
		eventually(t, "the node votes", nodeAt(b, s).votes)
	}
}

// wiped restarts the third node without data, freezes the first two, resumes
// the last two, and returns when the last three vote.
func wiped(t testing.TB, b *Backend, nodes servers.Nodes) {
	t.Helper()
	must(t, nodes[2].Stop())
	must(t, nodes[2].Start(t.Context(), false))
	for _, s := range nodes[3:] {
		must(t, s.Resume())
	}
	for _, s := range nodes[:2] {
		must(t, s.Freeze())
	}
	voting(t, b, nodes[2:]...)
}

func acquireSoon(t testing.TB, b *Backend, name string) driver.Request {
	t.Helper()
	r := lease(name, "")
	r.TTL = b.opts.ttlMin()
	tries := 0
	eventually(t, "a grant", func() bool {
		tries++
		r.Owner = fmt.Sprint("soon", tries)
		var err error
		if r.Token, err = b.TryAcquire(t.Context(), r); err != nil && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	return r
}

func TestTwoOfFiveStopped(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	before := acquire(t, b, lease("before", "o"))
	for _, s := range nodes[1:3] {
		must(t, s.Stop())
	}
	must(t, b.Renew(ctx, before))
	must(t, b.Release(ctx, before))
	r := acquire(t, b, lease("a", "o1"))
	must(t, b.Renew(ctx, r))
	_, err := b.TryAcquire(ctx, lease("a", "o2"))
	if by := held(t, err); by.Owner != "o1" {
		t.Errorf("held by %+v", by)
	}
	r.Value = []byte("v")
	must(t, b.Proclaim(ctx, r))
	h, err := b.Inspect(ctx, "a")
	if err != nil || h.Token != r.Token || string(h.Value) != "v" {
		t.Errorf("inspect: %+v, %v", h, err)
	}
	must(t, b.Release(ctx, r))
	must(t, b.Check(ctx))
	if last := acquire(t, b, lease("a", "o4")); last.Token <= r.Token {
		t.Errorf("token %d is not above %d", last.Token, r.Token)
	}
}

func TestThreeOfFiveStopped(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	had := acquire(t, b, lease("had", "o"))
	for _, s := range nodes[2:] {
		must(t, s.Stop())
	}
	for i := range 20 {
		began := time.Now()
		_, err := b.TryAcquire(ctx, lease("a", fmt.Sprint("o", i)))
		if took := time.Since(began); took > 25*b.opts.NodeTimeout {
			t.Errorf("refused after %v", took)
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("acquire with 2 of 5 nodes: %v", err)
		}
		if i > 0 && !errors.Is(err, driver.ErrNotSent) {
			t.Errorf("what the living nodes have confirmed as undone counts as unknown: %v", err)
		}
		if n := keyCount(t, nodes, "a"); n != 0 {
			t.Fatalf("the refused lock is on %d living nodes", n)
		}
		if !contains(err, nodes[4].Addr()) || !contains(err, "2 of 5 nodes vote and 3 are needed") {
			t.Errorf("the error does not say which nodes are missing: %v", err)
		}
	}
	for _, err := range []error{b.Renew(ctx, had), b.Release(ctx, had), b.Check(ctx)} {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("with 2 of 5 nodes: %v", err)
		}
	}
	if _, err := b.Inspect(ctx, "a"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("inspect with 2 of 5 nodes: %v", err)
	}
}

// A frozen node delays requests only once, by node_timeout. Later requests do not wait for it.
func TestBlackHole(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	// Two nodes refuse the lock and two grant it, so the first request needs the frozen node's vote.
	for _, s := range nodes[:2] {
		must(t, plain(t, s).Set(ctx, "a", "somebody", 0).Err())
	}
	// A try may fail because a busy machine delays a call, so one good try is enough.
	const tries = 5
	for try := 1; ; try++ {
		must(t, nodes[4].Freeze())
		says := waitsForNode(t, b, fmt.Sprint("try", try))
		must(t, nodes[4].Resume())
		voting(t, b, nodes[4])
		switch {
		case says == "":
			return
		case try == tries:
			t.Fatal(says)
		default:
			t.Log("again: ", says)
		}
	}
}

// waitsForNode sends acquires while one node does not answer: 50 for the lock "a", and then one for
// each of 50 free locks. It returns a text about a call that took too long, or "" if no call did.
func waitsForNode(t *testing.T, b *Backend, owner string) string {
	t.Helper()
	const slack = 30 * time.Millisecond
	slow := 0
	for i := range 50 {
		began := time.Now()
		_, err := b.TryAcquire(t.Context(), lease("a", fmt.Sprint(owner, "-", i)))
		took := time.Since(began)
		if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		if took > 2*b.opts.NodeTimeout+slack {
			return fmt.Sprintf("call %d took %v", i, took)
		}
		if took > b.opts.NodeTimeout/2 {
			slow++
		}
	}
	if slow > 3 {
		return fmt.Sprintf("%d of 50 calls waited for the node", slow)
	}
	for i := range 50 {
		began := time.Now()
		acquire(t, b, lease(fmt.Sprint(owner, " free ", i), "o"))
		if took := time.Since(began); took > b.opts.NodeTimeout+slack {
			return fmt.Sprintf("grant %d took %v", i, took)
		}
	}
	return ""
}

// When a frozen node resumes, it executes the requests that it got while frozen. If the lock was
// released in that time, these requests must not leave the lock on that node.
func TestLateRequests(t *testing.T) {
	nodes, b := cluster(t, nil)
	must(t, nodes[0].Freeze())
	r := acquire(t, b, lease("a", "o1")) // the request is in the frozen node's buffers
	must(t, b.Release(t.Context(), r))
	must(t, nodes[0].Resume())
	voting(t, b, nodes[0])
	eventually(t, "no node has the lock", func() bool { return keyCount(t, nodes, "a") == 0 })
	acquire(t, b, lease("a", "o2"))
	eventually(t, "every node has the next lock", func() bool { return keyCount(t, nodes, "a") == 5 })
}

// After a renewal, nodes that missed the grant get a copy of the lease, and then vote for renewals.
func TestRepair(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	cutOff(t, b, nodes[3:])
	r := lease("a", "o1")
	r.Value = []byte("v")
	r = acquire(t, b, r)
	for _, s := range nodes[3:] {
		must(t, s.Resume())
	}
	voting(t, b, nodes[3:]...)
	if n := keyCount(t, nodes, "a"); n != 3 {
		t.Fatalf("the lock is on %d nodes", n)
	}
	must(t, b.Renew(ctx, r))
	eventually(t, "the lock is on all nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
	must(t, nodes[0].Stop())
	must(t, nodes[1].Stop())
	must(t, b.Renew(ctx, r))
	h, err := b.Inspect(ctx, "a")
	if err != nil || h.Owner != "o1" || h.Token != r.Token || string(h.Value) != "v" || h.Label != r.Label {
		t.Errorf("inspect: %+v, %v", h, err)
	}
}

// A node that refuses writes keeps a lease that was released or broken. If several nodes kept the
// lease, no owner could get a majority. So the node must get the release or the Break again.
func TestRefusedReleaseIsMadeUpFor(t *testing.T) {
	for how, end := range map[string]func(*Backend, driver.Request) error{
		"release": func(b *Backend, r driver.Request) error { return b.Release(t.Context(), r) },
		"keep": func(b *Backend, r driver.Request) error {
			r.Keep = 1500 * time.Millisecond
			return b.Release(t.Context(), r)
		},
		"break": func(b *Backend, r driver.Request) error { return b.Break(t.Context(), r.Name, r.Token) },
	} {
		t.Run(how, func(t *testing.T) {
			nodes, b := cluster(t, nil)
			for i, s := range nodes {
				r := lease("a", fmt.Sprint("o", i))
				r.TTL = time.Minute
				eventually(t, "the lock is free", func() bool { return keyCount(t, nodes, "a") == 0 })
				r = acquire(t, b, r)
				eventually(t, "the lock is on 5 nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
				c := plain(t, s)
				must(t, c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
				must(t, end(b, r))
				if n := keyCount(t, nodes[i:i+1], "a"); n != 1 {
					t.Fatal("the node that refuses has released")
				}
				must(t, c.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
				eventually(t, "the node has released", func() bool { return c.PTTL(t.Context(), "a").Val() < 2*time.Second })
			}
		})
	}
}

// Check must fail if nodes answer reads but refuse writes, because no lock would be granted.
func TestCheckTriesToWrite(t *testing.T) {
	nodes := start(t, 3, nil)
	ctx, cfg := t.Context(), configOf(nodes, nil)
	must(t, initialise(ctx, cfg))
	b := connect(t, cfg)
	must(t, b.Check(ctx))
	for _, c := range []struct {
		refuse, allow string
		want          error
	}{
		{"config set maxmemory 1mb", "config set maxmemory 0", driver.ErrUnavailable},
		{"config set min-replicas-to-write 1", "config set min-replicas-to-write 0", driver.ErrUnavailable},
		{"replicaof 127.0.0.1 1", "replicaof no one", driver.ErrUnavailable},
		{"acl setuser default -set", "acl setuser default +set", driver.ErrDenied},
		{"acl setuser default -setrange", "acl setuser default +setrange", driver.ErrDenied},
	} {
		command := func(text string) {
			for _, s := range nodes[1:] {
				var args []any
				for word := range strings.FieldsSeq(text) {
					args = append(args, word)
				}
				must(t, plain(t, s).Do(ctx, args...).Err())
			}
		}
		command(c.refuse)
		if err := b.Check(ctx); !errors.Is(err, c.want) {
			t.Errorf("check after %q: %v, want %v", c.refuse, err, c.want)
		}
		if _, err := b.TryAcquire(ctx, lease("a", c.refuse[:3])); err == nil {
			t.Errorf("granted after %q", c.refuse)
		}
		command(c.allow)
		eventually(t, "check is nil", func() bool { return b.Check(ctx) == nil })
	}
}

// A node missed a Break, and the host that sent the Break is gone. The holder's next renewal fails,
// and the holder's host must then end the lease on that node too.
func TestMissedBreakIsNotProlonged(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	r := lease("a", "o1")
	r.TTL = time.Minute
	r = acquire(t, b, r)
	eventually(t, "the lock is on 5 nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
	operator := connect(t, configOf(nodes, nil))
	must(t, operator.Check(ctx))
	c := plain(t, nodes[4])
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	must(t, operator.Break(ctx, "a", r.Token))
	must(t, operator.Close(ctx))
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	if n := keyCount(t, nodes[4:], "a"); n != 1 {
		t.Fatal("the node has not missed the break")
	}
	gone(t, b.Renew(ctx, r))
	eventually(t, "no node has the lease", func() bool { return keyCount(t, nodes, "a") == 0 })
}

// If only a minority of nodes has a lease, renewals fail, and no other node gets the lease.
func TestRepairDoesNotResurrect(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	r := acquire(t, b, lease("a", "o1"))
	for _, s := range nodes[:3] {
		must(t, plain(t, s).Del(ctx, "a").Err())
	}
	for range 3 {
		gone(t, b.Renew(ctx, r))
	}
	eventually(t, "no node has the lost lease", func() bool { return keyCount(t, nodes, "a") == 0 })
	next := acquire(t, b, lease("a", "o2"))
	if next.Token <= r.Token {
		t.Errorf("token %d is not above %d", next.Token, r.Token)
	}
	gone(t, b.Renew(ctx, r))
}

// Three of five nodes have the lock, and one of the three is restarted without data. The vote of
// this node must not count for another owner. With quarantine off, the vote does count.
func TestRestartWithoutData(t *testing.T) {
	for _, quarantine := range []string{"on", "off"} {
		t.Run("quarantine="+quarantine, func(t *testing.T) {
			nodes, b := cluster(t, driver.Config{"quarantine": quarantine})
			cutOff(t, b, nodes[3:])
			held := lease("a", "o1")
			held.TTL = time.Minute
			end := time.Now().Add(held.TTL)
			acquire(t, b, held)
			must(t, nodes[2].Stop())
			must(t, nodes[2].Start(t.Context(), false))
			for _, s := range nodes[3:] {
				must(t, s.Resume())
			}
			other := connect(t, configOf(nodes, driver.Config{"quarantine": quarantine}))
			if quarantine == "off" {
				voting(t, other, nodes...)
				acquire(t, other, lease("a", "o2")) // while o1 still holds it for seconds
				must(t, b.Check(t.Context()))
				return
			}
			voting(t, other, nodes[0], nodes[1], nodes[3], nodes[4])
			for i := range 200 {
				_, err := other.TryAcquire(t.Context(), lease("a", fmt.Sprint("o2-", i)))
				if time.Now().After(end) {
					t.Fatalf("the lease is over after %d attempts", i)
				}
				if err == nil {
					t.Fatal("granted twice")
				}
				if !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable) {
					t.Fatal(err)
				}
			}
		})
	}
}

// After FLUSHALL, which breaks no connection, a node must not vote until the lost lease is over.
func TestFlush(t *testing.T) {
	nodes, b := cluster(t, driver.Config{"max_ttl": "3s", "node_timeout": "100ms"})
	cutOff(t, b, nodes[3:])
	r := lease("a", "o1")
	r.TTL = 3 * time.Second
	acquire(t, b, r)
	began := time.Now()
	must(t, plain(t, nodes[2]).FlushAll(t.Context()).Err())
	for _, s := range nodes[3:] {
		must(t, s.Resume())
	}
	voting(t, b, nodes[3], nodes[4])
	r.Owner = "o2"
	if _, err := b.TryAcquire(t.Context(), r); err == nil {
		t.Fatal("granted twice")
	}
	eventually(t, "the node is in quarantine", func() bool { return !nodeAt(b, nodes[2]).votes() })
	voting(t, b, nodes[2])
	if after := time.Since(began); after < r.TTL {
		t.Errorf("it votes after %v, before the lock has ended", after)
	}
}

// Three nodes have the last token. Two freeze, and one loses its data. Tokens must still rise.
func TestTokenAfterWipe(t *testing.T) {
	nodes, b := cluster(t, driver.Config{"max_ttl": "2s", "node_timeout": "100ms"})
	cutOff(t, b, nodes[3:])
	r := lease("a", "o1")
	r.TTL = 2 * time.Second
	r = acquire(t, b, r)
	must(t, b.Release(t.Context(), r))
	wiped(t, b, nodes)
	if next := acquireSoon(t, b, "a"); next.Token <= r.Token {
		t.Errorf("token %d after the wipe is not above %d", next.Token, r.Token)
	}
}

// New nodes begin to vote after max_ttl, even without the command init.
func TestFreshCluster(t *testing.T) {
	nodes := start(t, 3, nil)
	cfg := configOf(nodes, driver.Config{"max_ttl": "2s", "node_timeout": "100ms"})
	b := connect(t, cfg)
	began := time.Now()
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !contains(err, "init") {
		t.Fatalf("check of a fresh cluster: %v", err)
	}
	acquireSoon(t, b, "a")
	if took := time.Since(began); took < 2*time.Second-100*time.Millisecond {
		t.Errorf("it votes after %v", took)
	}
}
