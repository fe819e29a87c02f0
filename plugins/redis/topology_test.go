package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// freePort returns a port that no other test takes until this test ends.
func freePort(t *testing.T) int {
	t.Helper()
	p, err := ports.Take(1)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p.Port(0)
}

func TestTLS(t *testing.T) {
	ca, dir := configtest.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "redis", time.Now().Add(time.Hour))
	authority := filepath.Join(dir, "ca.pem")
	configtest.Write(t, authority, ca.PEM)
	port := freePort(t)
	start(t, &redisserver.Options{Lines: []string{
		fmt.Sprint("tls-port ", port), "tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + authority}})
	addr := fmt.Sprint("127.0.0.1:", port)

	trusted := Connect{TLSCAFile: authority, TLSCertFile: cert, TLSKeyFile: key}
	b := connect(t, Options{Address: []string{"rediss://" + addr}, Connect: trusted})
	must(t, b.Check(t.Context()))
	holder := acquire(t, b, lease("a", "o1"))
	turn := queue(t, b, lease("a", "o2"))
	must(t, b.Release(t.Context(), holder))
	receive(t, turn, "the waiter")

	named := trusted
	named.TLSServerName = "redis.test"
	must(t, connect(t, Options{Address: []string{addr}, Connect: named}).Check(t.Context()))
	for what, c := range map[string]Connect{
		"an unknown authority": {TLSEnabled: new(true), TLSCertFile: cert, TLSKeyFile: key},
		"a wrong name":         {TLSCAFile: authority, TLSCertFile: cert, TLSKeyFile: key, TLSServerName: "other.test"},
	} {
		err := connect(t, Options{Address: []string{addr}, Connect: c}).Check(t.Context())
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// useEverything calls most operations of a backend, on two hosts.
func useEverything(t *testing.T, o Options) {
	t.Helper()
	ctx := t.Context()
	b, other := connect(t, o), connect(t, o)
	must(t, b.Check(ctx))
	var ops []driver.Op
	for i := range 100 {
		ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lease(fmt.Sprint("batch/{", i), "o")})
	}
	var last uint64
	for i, r := range b.Batch(ctx, ops) {
		must(t, r.Err)
		ops[i].Token = r.Token
		last = max(last, r.Token)
	}
	count := 0
	must(t, b.List(ctx, "batch/", func(driver.Holder) bool { count++; return true }))
	if count != len(ops) {
		t.Errorf("listed %d of %d", count, len(ops))
	}
	for i := range ops {
		ops[i].Kind = driver.OpRelease
	}
	for _, r := range b.Batch(ctx, ops) {
		must(t, r.Err)
	}
	seen := observe(t, b, "a")
	holder := acquire(t, b, lease("a", "o1"))
	if h := next(t, seen); h.Token != holder.Token {
		t.Errorf("observed %+v", h)
	}
	must(t, b.Renew(ctx, holder))
	turn := queue(t, other, lease("a", "o2"))
	began := time.Now()
	must(t, b.Release(ctx, holder))
	if got := receive(t, turn, "the waiter"); got.Token <= holder.Token {
		t.Errorf("token %d is not above %d", got.Token, holder.Token)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("handoff took %v, and the TTL is 10s", took)
	}
	late := lease("b", "late")
	must(t, b.Withdraw(ctx, late.Name, late.Owner))
	if _, err := other.TryAcquire(ctx, late); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("acquire after the withdrawal: %v", err)
	}
}

// startCluster starts a Cluster of count masters, which share the slots equally.
func startCluster(t *testing.T, count int, lines ...string) (servers.Nodes, Options) {
	t.Helper()
	nodes, err := redisserver.StartCluster(t.Context(), count, lines...)
	servers.Keep(t, "redis", nodes, err)
	return nodes, Options{Cluster: true, Address: strings.Split(nodes.Addr(), ",")}
}

func TestCluster(t *testing.T) {
	servers, opts := startCluster(t, 3)
	useEverything(t, opts)

	// The first node has slots 0 to 5460, but "a" is in slot 15495.
	b := connect(t, at(servers[0]))
	_, err := b.TryAcquire(t.Context(), lease("a", "o1"))
	if err == nil || !strings.Contains(err.Error(), "set cluster") {
		t.Errorf("a node of a Cluster without cluster: %v", err)
	}
}

// TestClusterDatabase checks that Options.DB works in a Cluster of Valkey 9 or later. With other
// servers, Check must fail with an error about the configuration key db.
func TestClusterDatabase(t *testing.T) {
	var major int
	for line := range strings.Lines(plain(t, start(t, nil)).Info(t.Context(), "server").Val()) {
		_, _ = fmt.Sscanf(line, "valkey_version:%d", &major)
	}
	if major < 9 {
		_, o := startCluster(t, 1)
		o.DB = 1
		err := connect(t, o).Check(t.Context())
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "see db: ") {
			t.Errorf("database 1 of a Cluster with one: %v", err)
		}
		return
	}
	_, o := startCluster(t, 3, "cluster-databases 2")
	other := connect(t, o)
	o.DB = 1
	useEverything(t, o)
	held := lease("one name", "o")
	acquire(t, other, held)
	acquire(t, connect(t, o), held)
	o.DB = 2
	err := connect(t, o).Check(t.Context())
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "cluster-databases") {
		t.Errorf("database 2 of two: %v", err)
	}
}

func TestSentinel(t *testing.T) {
	master := start(t, &redisserver.Options{Lines: []string{"repl-diskless-sync-delay 0"}})
	host, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := start(t, &redisserver.Options{Lines: []string{"replicaof " + host + " " + port}})
	sentinel := start(t, &redisserver.Options{Args: []string{"--sentinel"}, Lines: []string{
		"sentinel monitor main " + host + " " + port + " 1",
		"sentinel down-after-milliseconds main 500", "sentinel failover-timeout main 3000"}})
	s := plain(t, sentinel)
	eventually(t, "the sentinel knows the replica", func() bool {
		reply, err := s.Do(t.Context(), "sentinel", "replicas", "main").Slice()
		return err == nil && len(reply) == 1
	})
	o := Options{Address: []string{sentinel.Addr()}, SentinelMaster: "main"}
	t.Run("everything", func(t *testing.T) { useEverything(t, o) })

	b := connect(t, o)
	before := acquire(t, b, lease("over", "o1"))
	eventually(t, "replicated", func() bool { return plain(t, replica).Exists(t.Context(), "over").Val() == 1 })
	must(t, master.Stop())
	eventually(t, "renewed after the failover", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Renew(ctx, before)
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("renew during the failover: %v", err)
		}
		return err == nil
	})
	must(t, b.Release(t.Context(), before))
	if after := acquire(t, b, lease("over", "o2")); after.Token <= before.Token {
		t.Errorf("token %d after the failover is not above %d", after.Token, before.Token)
	}

	_, err = connect(t, Options{Address: []string{sentinel.Addr()}, SentinelMaster: "nobody"}).TryAcquire(t.Context(), lease("a", "x"))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "see sentinel_master") {
		t.Errorf("an unknown master: %v", err)
	}
	err = connect(t, at(sentinel)).Check(t.Context())
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "set sentinel_master") {
		t.Errorf("a sentinel's address without sentinel_master: %v", err)
	}
}

// TestSentinelPasswordFile checks that the sentinels' password is read again for each connection.
func TestSentinelPasswordFile(t *testing.T) {
	master := start(t, nil)
	host, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	sentinel := start(t, &redisserver.Options{Args: []string{"--sentinel"}, Password: "of-today", Lines: []string{
		"sentinel monitor main " + host + " " + port + " 1"}})
	file := filepath.Join(t.TempDir(), "password")
	configtest.Write(t, file, []byte("of-yesterday\n"))
	b := connect(t, Options{Address: []string{sentinel.Addr()}, SentinelMaster: "main", SentinelPasswordFile: file})
	if err := b.Check(t.Context()); err == nil || strings.Contains(err.Error(), "yesterday") {
		t.Errorf("with the password of yesterday: %v", err)
	}
	configtest.Write(t, file, []byte("of-today\n"))
	eventually(t, "logged in", func() bool { return b.Check(t.Context()) == nil })
	must(t, b.Release(t.Context(), acquire(t, b, lease("a", "o1"))))
}

// TestSentinelTLSApart uses TLS only for the servers, and then only for the sentinels.
func TestSentinelTLSApart(t *testing.T) {
	ca, dir := configtest.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "redis", time.Now().Add(time.Hour))
	authority := filepath.Join(dir, "ca.pem")
	configtest.Write(t, authority, ca.PEM)
	startTLS := func(args []string, lines ...string) (plain, secure string) {
		port := freePort(t)
		s := start(t, &redisserver.Options{Args: args, Lines: append([]string{
			fmt.Sprint("tls-port ", port), "tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + authority}, lines...)})
		return s.Addr(), fmt.Sprint("127.0.0.1:", port)
	}
	for _, serversHave := range []bool{true, false} {
		t.Run(fmt.Sprint("servers ", serversHave), func(t *testing.T) {
			master, masterTLS := startTLS(nil)
			replication := "no"
			if serversHave {
				master, replication = masterTLS, "yes"
			}
			sentinel, sentinelTLS := startTLS([]string{"--sentinel"}, "tls-replication "+replication,
				"sentinel monitor main "+strings.ReplaceAll(master, ":", " ")+" 1")
			o := Options{SentinelMaster: "main", Address: []string{sentinel}, SentinelTLSEnabled: new(!serversHave),
				Connect: Connect{TLSEnabled: &serversHave, TLSCAFile: authority, TLSCertFile: cert, TLSKeyFile: key}}
			if !serversHave {
				o.Address[0] = "rediss://" + sentinelTLS
			}
			useEverything(t, o)

			o.SentinelTLSEnabled = &serversHave // wrong, because the sentinels differ from the servers
			o.Address = []string{strings.TrimPrefix(o.Address[0], "rediss://")}
			if !serversHave {
				o.Connect = Connect{}
			}
			err := connect(t, o).Check(t.Context())
			// A sentinel without TLS may wait for more handshake data. The error then names no key.
			if !errors.Is(err, driver.ErrUnavailable) || !serversHave && !strings.Contains(err.Error(), "sentinel_tls_enabled") {
				t.Errorf("the sentinels as the servers: %v", err)
			}
		})
	}
}

func TestWaitReplicas(t *testing.T) {
	master := start(t, &redisserver.Options{Lines: []string{"repl-diskless-sync-delay 0"}})
	host, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	o := at(master)
	o.WaitReplicas, o.WaitTimeout = 1, 100*time.Millisecond
	b := connect(t, o)
	r := lease("a", "o1")
	_, err = b.TryAcquire(t.Context(), r)
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("acquire without a replica: %v", err)
	}
	must(t, b.Withdraw(t.Context(), r.Name, r.Owner))
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "0 replicas and wait_replicas is 1") {
		t.Errorf("check without a replica: %v", err)
	}

	replica := start(t, &redisserver.Options{Lines: []string{"replicaof " + host + " " + port}})
	c := goredis.NewClient(&goredis.Options{Addr: replica.Addr()})
	defer c.Close()
	eventually(t, "replicated", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	r = lease("a", "o2")
	eventually(t, "granted", func() bool {
		if r.Token, err = b.TryAcquire(t.Context(), r); err != nil {
			must(t, b.Withdraw(t.Context(), r.Name, r.Owner))
			r.Owner += "x"
		}
		return err == nil
	})
	must(t, b.Renew(t.Context(), r))
	must(t, b.Check(t.Context()))
	if v := c.Get(t.Context(), "a").Val(); !strings.HasPrefix(v, r.Owner+" ") {
		t.Errorf("the replica has %q", v)
	}
	must(t, replica.Stop())
	for range 2 { // the second release finds no lease
		if err := b.Release(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("release that no replica has: %v", err)
		}
	}
}
