package baseline

import (
	"errors"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
)

func TestEtcdBaselines(t *testing.T) {
	s, err := env.StartEtcd(t.Context(), nil)
	if err != nil {
		env.Missing(t, "etcd", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := driver.Config{"address": s.Addr()}
	for _, bl := range All() {
		if bl.Backend != "etcd" {
			continue
		}
		t.Run(bl.Name, func(t *testing.T) { testExclusion(t, bl, cfg, cfg) })
	}
	call, end, err := EtcdGet(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(call(t.Context()), end()); err != nil {
		t.Error(err)
	}
}

// TestSessionsExclude: two callers of one name in one process exclude each
// other, although a session does not do that for itself.
func TestSessionsExclude(t *testing.T) {
	s, err := env.StartEtcd(t.Context(), nil)
	if err != nil {
		env.Missing(t, "etcd", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := etcdMutexBaseline.Open(t.Context(), driver.Config{"address": s.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	first, err := l.Lock("jobs", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.Lock("jobs", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Lock("other", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if first.(mutexLock).session != other.(mutexLock).session {
		t.Error("two names do not share the session")
	}
	if first.(mutexLock).session == second.(mutexLock).session {
		t.Error("two callers of one name share a session, which does not keep them apart")
	}
}
