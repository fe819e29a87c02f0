package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// follower starts a replica of the server master, and waits until the replica has the data.
func follower(t *testing.T, master *servers.Server) *servers.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := start(t, &redisserver.Options{Lines: []string{"replicaof " + host + " " + port}})
	c := plain(t, replica)
	eventually(t, "replicated", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	return replica
}

// failover swaps the roles of two servers. Connections to the old master stay open.
func failover(t *testing.T, master, replica *servers.Server) {
	t.Helper()
	must(t, plain(t, master).Do(t.Context(), "FAILOVER").Err())
	for _, s := range []struct {
		*servers.Server
		role string
	}{{master, "role:slave"}, {replica, "role:master"}} {
		c := plain(t, s.Server)
		eventually(t, s.role, func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), s.role) })
	}
}

// After a failover, the connections to the old master stay open and the address leads to the new
// master. A host must acquire a lock within 1 s, and no lease may be lost.
func TestFailoverThatCutsNothing(t *testing.T) {
	master := start(t, &redisserver.Options{Lines: []string{"repl-diskless-sync-delay 0"}})
	replica := follower(t, master)
	address := backendtest.NewProxy(t, master.Addr())
	b := connect(t, Options{Address: []string{address.Addr()}})
	client := core.New(b, nil)
	t.Cleanup(func() { must(t, client.Close(context.WithoutCancel(t.Context()))) })
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	must(t, client.Check(ctx))
	var leases []*core.Lease
	for i := range 20 {
		l, err := client.Lock(fmt.Sprint("held", i), &core.LockOptions{TTL: 5 * time.Second})
		must(t, err)
		lease, err := l.Acquire(ctx)
		must(t, err)
		leases = append(leases, lease)
	}
	for round := range 5 {
		failover(t, master, replica)
		master, replica = replica, master
		must(t, address.Lead(master.Addr()))
		l, err := client.Lock(fmt.Sprint("free", round), nil)
		must(t, err)
		within, cancel := context.WithTimeout(ctx, time.Second)
		lease, err := l.Acquire(within)
		cancel()
		if err != nil {
			t.Fatalf("failover %d: %v", round, err)
		}
		must(t, lease.Release(ctx))
		eventually(t, "the check holds", func() bool { return client.Check(ctx) == nil })
	}
	for i, l := range leases {
		if !l.Valid() {
			t.Errorf("lease %d: %v", i, l.Err())
		}
	}
	must(t, plain(t, master).Do(ctx, "REPLICAOF", "NO", "ONE").Err())
}

// A host that sends no requests also notices a failover that closes no connection. It then receives
// its wake-ups from the promoted server.
func TestFailoverIsSeenByAnIdleHost(t *testing.T) {
	master := start(t, &redisserver.Options{Lines: []string{"repl-diskless-sync-delay 0"}})
	replica := follower(t, master)
	address := backendtest.NewProxy(t, master.Addr())
	b := connect(t, Options{Address: []string{address.Addr()}})
	must(t, b.Check(t.Context()))
	failover(t, master, replica)
	must(t, address.Lead(replica.Addr()))
	c := plain(t, replica)
	eventually(t, "connected to the promoted server", func() bool {
		list := c.ClientList(t.Context()).Val()
		return strings.Contains(list, "cmd=info") && strings.Contains(list, "cmd=subscribe")
	})
}

// If one address leads to two masters, a host uses only one of them while that master serves.
func TestTwoMastersBehindOneAddress(t *testing.T) {
	one, other := start(t, nil), start(t, nil)
	address := backendtest.NewProxy(t, one.Addr(), other.Addr())
	b := connect(t, Options{Address: []string{address.Addr()}, PoolSize: 8})
	first := acquire(t, b, lease("held", "first"))
	ctx := t.Context()
	refused := 0
	for i := range 300 {
		// Only the first master has the lock, so the other master would grant it.
		errs := make(chan error)
		for j := range 8 {
			go func() {
				_, err := b.TryAcquire(ctx, lease("held", fmt.Sprint("o", i, j)))
				errs <- err
			}()
		}
		for range 8 {
			switch err := <-errs; {
			case err == nil:
				t.Fatalf("round %d: granted while it is held", i)
			case errors.Is(err, driver.ErrNotSent) && strings.Contains(err.Error(), "leads to two servers"):
				refused++
			case !errors.Is(err, driver.ErrHeld):
				t.Fatalf("round %d: %v", i, err)
			}
		}
	}
	must(t, b.Renew(ctx, first))
	if refused > 0 || b.identity.Recent() != nil {
		if err := b.Check(ctx); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), b.identity.Current()) {
			t.Errorf("check after %d refusals: %v", refused, err)
		}
	} else {
		t.Error("no connection has led to the other master")
	}

	// When the master in use is gone, the other master takes its place.
	must(t, one.Stop())
	must(t, address.Lead(other.Addr()))
	eventually(t, "granted by the other", func() bool {
		_, err := b.TryAcquire(ctx, lease("next", "o"))
		return err == nil
	})
	must(t, b.Check(ctx))
}

// A host that sends no requests reads its server's settings at the interval look_every.
func TestIdleHostAsksAsItsKeySays(t *testing.T) {
	s := start(t, nil)
	for _, rare := range []bool{false, true} {
		o := at(s)
		if o.LookEvery = 100 * time.Millisecond; rare {
			o.LookEvery = time.Hour
		}
		b, c := connect(t, o), plain(t, s)
		must(t, b.Check(t.Context()))
		if !rare {
			asked := calls(t, c, "info")
			eventually(t, "asked again", func() bool { return calls(t, c, "info") > asked+3 })
			must(t, b.Close(t.Context()))
			continue
		}
		infos, pings := calls(t, c, "info"), calls(t, c, "ping")
		time.Sleep(3 * time.Second) // the test expects no request, so there is no event to wait for
		// Two of the INFO commands are from this test itself.
		if i, p := calls(t, c, "info"), calls(t, c, "ping"); i > infos+2 || p > pings {
			t.Errorf("in 3 s: %d INFO, %d PING", i-infos-2, p-pings)
		}
	}
}

// calls returns the number of times that the server has executed a command. It sends an INFO.
func calls(t *testing.T, c *goredis.Client, command string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		_, _ = fmt.Sscanf(line, "cmdstat_"+command+":calls=%d", &n)
	}
	return n
}
