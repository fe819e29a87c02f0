package etcd

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/internal/servers"
)

func TestEtcdKeepsOrLosesData(t *testing.T) {
	s, err := Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // reports that it was cancelled
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
		got, err := c.Get(t.Context(), "a")
		if err != nil || (got.Count == 1) != keep {
			t.Errorf("started with keepData=%v: %v, %v", keep, got, err)
		}
	}
}
