package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/internal/servers"
)

// dialEtcd skips when there is no server, unless LOCKBENCH_REQUIRE names it.
func dialEtcd(t *testing.T, size int) (servers.Nodes, *clientv3.Client) {
	t.Helper()
	members, err := StartCluster(t.Context(), size, nil)
	servers.Keep(t, "etcd", members, err)
	c, err := clientv3.New(clientv3.Config{Endpoints: members.Addrs(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // reports that it was cancelled
	return members, c
}

func etcdGet(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := c.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Count
}

func TestEtcdKeepsOrLosesData(t *testing.T) {
	members, c := dialEtcd(t, 1)
	s := members[0]
	if _, err := c.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		if got := etcdGet(t, c) == 1; got != keep {
			t.Errorf("started with keepData=%v: the key is there: %v", keep, got)
		}
	}
}

// TestEtcdCluster: three members answer, and two of them still do.
func TestEtcdCluster(t *testing.T) {
	members, c := dialEtcd(t, 3)
	if _, err := c.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	list, err := c.MemberList(t.Context())
	if err != nil || len(list.Members) != 3 {
		t.Fatalf("members: %v, %v", list, err)
	}
	if err := members[0].Stop(); err != nil {
		t.Fatal(err)
	}
	if etcdGet(t, c) != 1 {
		t.Error("two of three have lost the key")
	}
	if err := members[0].Start(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}
