package redlock

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// lateUndo is a proxy before a node. When a client first sends an undo, the proxy holds back the
// undo and all later data of that connection. It can send the data later, even if the client has
// closed the connection. The proxy forwards everything else.
type lateUndo struct {
	to      string
	once    sync.Once
	arrives chan struct{} // closed to send the held data
	arrived chan struct{} // closed when the node has answered the held data
}

func delayUndo(t testing.TB, s *servers.Server) (*lateUndo, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &lateUndo{to: s.Addr(), arrives: make(chan struct{}), arrived: make(chan struct{})}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.carry(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		if t.Failed() {
			return // p.arrives may never be closed, so do not wait
		}
		conns.Wait()
	})
	return p, listener.Addr().String()
}

// carry forwards the data of one connection until the client closes it. When p.arrives is closed,
// carry forwards the held data and waits for the node's answer.
func (p *lateUndo) carry(client net.Conn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	held := p.forward(client, server)
	_ = client.Close()
	if held != nil {
		<-p.arrives
		_, _ = server.Write(held)
		back.Wait() // waits for the node's answer; the client is already gone
		close(p.arrived)
	}
	_ = server.Close()
	back.Wait()
}

// forward sends the client's data to the server until the client closes the connection. On the
// connection with the first undo, it does not send the undo and later data, but returns them.
func (p *lateUndo) forward(client, server net.Conn) (held []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return held
		}
		if bytes.Contains(buf[:n], []byte("$1\r\n"+kindUndo+"\r\n")) {
			p.once.Do(func() { held = []byte{} })
		}
		if held != nil {
			held = append(held, buf[:n]...)
		} else if _, err := server.Write(buf[:n]); err != nil {
			return nil
		}
	}
}

// An undo arrives late, over a connection that its host has closed. Meanwhile the same owner has
// got the lock, on two of three nodes. The undo must not delete this grant.
func TestLateUndo(t *testing.T) {
	ctx := t.Context()
	nodes := start(t, 3, nil)
	must(t, initialise(ctx, configOf(nodes, nil)))
	late, addr := delayUndo(t, nodes[0])
	cfg := configOf(nodes, nil)
	cfg["address"] = strings.Join([]string{addr, nodes[1].Addr(), nodes[2].Addr()}, ",")
	b := connect(t, cfg)
	must(t, b.Check(ctx))
	cutOff(t, b, nodes[2:])

	foreign := plain(t, nodes[1])
	must(t, foreign.SetNX(ctx, "a", "somebody", 0).Err())
	r := lease("a", "o1")
	r.TTL = 30 * time.Second
	_, err := b.TryAcquire(ctx, r)
	held(t, err)
	eventually(t, "the undo is told again", func() bool { return keyCount(t, nodes[:1], "a") == 0 })
	must(t, foreign.Del(ctx, "a").Err())

	r = acquire(t, b, r)
	close(late.arrives)
	<-late.arrived
	if n := keyCount(t, nodes[:2], "a"); n != 2 {
		t.Errorf("after the late undo the lock is on %d of its 2 nodes", n)
	}
	must(t, nodes[2].Resume())
	other := connect(t, configOf(nodes, nil))
	voting(t, other, nodes...)
	_, err = other.TryAcquire(ctx, lease("a", "other"))
	held(t, err)
	must(t, b.Renew(ctx, r))
}

// An undo deletes only values that the undone attempt may have written.
func TestUndoIsOfItsAttempt(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	a := &acquisition{operation: operation{b: b, r: lease("a", "o-1")}, first: &quorumRequest{token: 7}}
	a.now = &quorumRequest{kind: kindToken, token: 9}
	heads := a.valueHeads()
	c := plain(t, nodes[0])
	for value, taken := range map[string]bool{
		"o-1 0 1:l": true, "o-1 7 1:l": true, "o-1 9 1:l": true,
		"o-1 8 1:l": false, "o-1 70 1:l": false, "o-1 77 1:l": false, "1 0 1:l": false, "o-12 0 1:l": false,
		"o-1": false, "o-1 7": false, "somebody": false, "\n": false,
	} {
		must(t, c.Set(ctx, "a", value, 0).Err())
		if was := undo(t, b, heads); !was.yes() || (keyCount(t, nodes[:1], "a") == 0) != taken {
			t.Errorf("the undo of the tokens 7 and 9 at %q: %+v", value, was)
		}
	}
	must(t, c.Del(ctx, "a").Err())
	must(t, c.RPush(ctx, "a", "o-1 7 ").Err())
	if was := undo(t, b, heads); was.answer != done || keyCount(t, nodes[:1], "a") != 1 {
		t.Errorf("the undo at a list: %+v", was)
	}
}

// undo makes the first node delete the lock "a" if the lock's value begins with a text in heads.
func undo(t testing.TB, b *Backend, heads string) vote {
	t.Helper()
	return one(t, b, &quorumRequest{kind: kindUndo, owner: "o-1", rest: heads})
}

// one sends the request x for the lock "a" to the first node, and returns the node's vote.
func one(t testing.TB, b *Backend, x *quorumRequest) vote {
	t.Helper()
	x.key, x.targets = b.keys.Lock("a"), make([]bool, len(b.nodes))
	x.targets[0] = true
	must(t, b.send(x))
	must(t, await(t.Context(), x))
	return x.result()[0]
}

// A second round, which writes a token, may be late. It must not write its token into a value of
// another attempt, because the undo of its own attempt would then delete that value.
func TestTokenIsOfItsAttempt(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	a := &acquisition{operation: operation{b: b, r: lease("a", "o-1")}, first: &quorumRequest{token: 7}}
	c := plain(t, nodes[0])
	for value, after := range map[string]string{
		"o-1 0 1:l": "o-1 9 1:l", "o-1 7 1:l": "o-1 9 1:l",
		"o-1 8 1:l": "o-1 8 1:l", "o-1 70 1:l": "o-1 70 1:l", "o-12 0 1:l": "o-12 0 1:l", "somebody": "somebody",
	} {
		must(t, c.Set(ctx, "a", value, 0).Err())
		was := one(t, b, &quorumRequest{kind: kindToken, owner: "o-1", token: 9, rest: a.guessed()})
		got, err := c.Get(ctx, "a").Result()
		must(t, err)
		if got != after || was.yes() != (value != after) {
			t.Errorf("the token 9 for the guess 7 at %q: %q, %+v", value, got, was)
		}
	}
}

// A node that refuses an undo gets it again. Otherwise this node would refuse all other owners for
// the TTL of the undone attempt.
func TestRefusedUndoIsMadeUpFor(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	a := &acquisition{operation: operation{b: b, r: lease("a", "o-1")}, first: &quorumRequest{token: 7}}
	a.now = a.first
	c := plain(t, nodes[0])
	must(t, c.Set(ctx, "a", "o-1 7 1:l", 0).Err())
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	if was := undo(t, b, a.valueHeads()); was.answer != unknown || keyCount(t, nodes[:1], "a") != 1 {
		t.Fatalf("the node that refuses has undone: %+v", was)
	}
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	eventually(t, "the node has undone it", func() bool { return keyCount(t, nodes[:1], "a") == 0 })
}

// If a node missed a release, Close sends the release to this node again before it returns.
func TestCloseTellsAgain(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	r := acquire(t, b, lease("a", "o1"))
	eventually(t, "the lock is on 5 nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
	c := plain(t, nodes[4])
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	must(t, b.Release(ctx, r))
	n := nodeAt(b, nodes[4])
	eventually(t, "the node has missed the release", func() bool { return n.owed() > 0 })
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	must(t, b.Close(ctx))
	if n := keyCount(t, nodes, "a"); n != 0 {
		t.Errorf("after Close the lease is on %d nodes", n)
	}
}

// A node missed a release, and the host that sent the release is gone. Another host must soon get
// the lock, even if another node is stopped.
func TestMissedReleaseOutlivesTheHost(t *testing.T) {
	ctx, nodes := t.Context(), start(t, 3, nil)
	cfg := configOf(nodes, nil)
	must(t, initialise(ctx, cfg))
	b, other := connect(t, cfg), connect(t, cfg)
	must(t, b.Check(ctx))
	must(t, other.Check(ctx))
	r := lease("a", "o1")
	r.TTL = time.Minute
	r = acquire(t, b, r)
	eventually(t, "the lock is on 3 nodes", func() bool { return keyCount(t, nodes, "a") == 3 })
	c := plain(t, nodes[2])
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	must(t, b.Release(ctx, r))
	must(t, b.Close(ctx))
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	if n := keyCount(t, nodes[2:], "a"); n != 1 {
		t.Fatal("the node has not missed the release")
	}
	must(t, nodes[0].Stop())
	began, end := time.Now(), r.TTL/2
	acquireSoon(t, other, "a")
	if took := time.Since(began); took > end {
		t.Errorf("granted after %v, with a TTL of %v", took, r.TTL)
	}
}

// Close must wait for requests that are queued for a node, because the node could otherwise miss a
// release.
func TestCloseWaitsForWhatIsQueued(t *testing.T) {
	nodes, b := cluster(t, nil)
	n := nodeAt(b, nodes[4])
	x := b.retryOf(&quorumRequest{kind: kindRelease, key: b.keys.Lock("a"), owner: "o1"})
	n.mu.Lock()
	n.queue.Add(x)
	n.mu.Unlock()
	if !n.hurry() {
		t.Error("nobody waits for the node")
	}
}

// If a node missed a release, the backend keeps the release as long as the lease may be on the
// node. For each node, it keeps only the newest maxRetries requests.
func TestMissedReleaseIsRemembered(t *testing.T) {
	nodes, b := cluster(t, driver.Config{"max_ttl": "24h", "node_timeout": "500ms"})
	r := acquire(t, b, lease("a", "o1"))
	eventually(t, "the lock is on 5 nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
	cutOff(t, b, nodes[4:])
	began := time.Now()
	must(t, b.Release(t.Context(), r))
	n := nodeAt(b, nodes[4])
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.retries) == 0 {
		t.Fatal("the node is not told again")
	}
	if len(n.retries) != 1 || n.retries[0].owner != "o1" || n.retries[0].until.Before(began.Add(24*time.Hour)) {
		t.Fatalf("of %d requests that the node is told again, the first is remembered for %v",
			len(n.retries), n.retries[0].until.Sub(began))
	}
	for range maxRetries {
		n.retryLater(&quorumRequest{kind: kindRelease, owner: "o2"})
	}
	if len(n.retries) != maxRetries || n.retries[0].owner != "o2" {
		t.Errorf("%d requests are remembered, the first of %s", len(n.retries), n.retries[0].owner)
	}
}
