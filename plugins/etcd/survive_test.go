package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
)

// TestAdoptionWithoutSpace checks locks whose process is replaced while the store has no space. The
// locks must be renewed on their present leases, and moved to new leases when there is space again.
func TestAdoptionWithoutSpace(t *testing.T) {
	const locks, ttl = 20, 4 * time.Second
	s := start(t, &etcdserver.Options{Args: []string{"--quota-backend-bytes=2000000"}})
	before, operator := connect(t, on(s)), plain(t, s)
	var held []driver.Request
	for i := range locks {
		r := lock(fmt.Sprint("jobs-", i), "a")
		r.TTL = ttl
		held = append(held, acquire(t, before, r))
	}
	eventually(t, "the store is full", func() bool {
		_, err := operator.Put(t.Context(), "noise", strings.Repeat("x", 500_000))
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	must(t, before.Close(t.Context()))
	after := connect(t, on(s))
	for began := time.Now(); time.Since(began) < 2*ttl; <-time.After(ttl / 3) {
		lost, failed := 0, error(nil)
		for _, res := range after.Batch(t.Context(), renewals(held)) {
			if res.Err != nil {
				lost, failed = lost+1, res.Err
			}
		}
		if lost > 0 {
			t.Fatalf("%d of %d locks are not renewed without space: %v", lost, locks, failed)
		}
	}
	resp, err := operator.Get(t.Context(), after.space.free("jobs-0"))
	must(t, err)
	where := resp.Kvs[0].Lease
	_, err = operator.Compact(t.Context(), resp.Header.Revision)
	must(t, err)
	_, err = operator.Defragment(t.Context(), s.Addr())
	must(t, err)
	alarms, err := operator.AlarmList(t.Context())
	must(t, err)
	for _, a := range alarms.Alarms {
		_, err = operator.AlarmDisarm(t.Context(), (*clientv3.AlarmMember)(a))
		must(t, err)
	}
	for _, r := range held {
		must(t, after.Renew(t.Context(), r))
	}
	resp, err = operator.Get(t.Context(), after.space.free("jobs-0"))
	must(t, err)
	if resp.Kvs[0].Lease == where {
		t.Error("it is on the lease of the earlier process still")
	}
}

func renewals(rs []driver.Request) []driver.Op {
	var ops []driver.Op
	for _, r := range rs {
		ops = append(ops, driver.Op{Kind: driver.OpRenew, Request: r})
	}
	return ops
}

// TestRightsTakenAway checks a lock that is not renewed and that the user may no longer delete.
// The lock must end with its etcd lease, although another lock on that lease was renewed.
func TestRightsTakenAway(t *testing.T) {
	s := start(t, nil)
	root, ctx := withUsers(t, s, "mine/"), t.Context()
	o := on(s)
	o.Username, o.Password, o.Prefix = "locks", secret, "mine/"
	b, other := connect(t, o), connect(t, o)
	may := func(right clientv3.PermissionType) {
		t.Helper()
		_, err := root.RoleGrantPermission(ctx, "locks", "mine/", clientv3.GetPrefixRangeEnd("mine/"), right)
		must(t, err)
	}
	kept, left := acquire(t, b, short("kept", "a")), acquire(t, b, short("left", "b"))
	l := b.table.find(left.Name, left.Owner, left.Token).lease
	stop := keepRenewing(t, b, kept)
	may(clientv3.PermissionType(clientv3.PermRead))
	if err := b.Release(ctx, left); !errors.Is(err, driver.ErrDenied) || l.retired.Load() {
		t.Errorf("released: %v; its lease is not renewed: %v", err, l.retired.Load())
	}
	heldUntil(t, other, "left")
	if !l.retired.Load() {
		t.Error("its lease would be renewed")
	}
	may(clientv3.PermissionType(clientv3.PermReadWrite))
	_ = stop() // the other lock may have been lost with the lease
	acquire(t, b, short("left", "c"))
}

// TestGenerationDeletedByHand deletes the generation's key, as if all data were lost. A lock
// acquired earlier must be free after its TTL, although the holder's process acquires other locks.
func TestGenerationDeletedByHand(t *testing.T) {
	s := start(t, nil)
	b, operator := connect(t, on(s)), plain(t, s)
	r := lock("jobs", "a")
	r.TTL = 3 * time.Second
	r = acquire(t, b, r)
	_, err := operator.Delete(t.Context(), b.space.generation)
	must(t, err)
	free := false
	for began := time.Now(); !free && time.Since(began) < 4*r.TTL; <-time.After(r.TTL / 10) {
		_ = b.Renew(t.Context(), r)
		other := lock("other", "b")
		other.TTL = r.TTL
		must(t, b.Release(t.Context(), acquire(t, b, other)))
		h, err := b.Inspect(t.Context(), "jobs")
		must(t, err)
		free = !h.Held()
	}
	if !free {
		t.Errorf("a lock of before the generation is held %v after its TTL", 3*r.TTL)
	}
}

// TestWaitersWithFrozenLeader checks owners that wait while the leader is frozen. All owners must
// be granted the lock, one by one, although the leader may revoke their entries when it continues.
func TestWaitersWithFrozenLeader(t *testing.T) {
	members, o := three(t)
	open := func() *core.Lock {
		c := core.New(connect(t, o), &core.Options{Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		l, err := c.Lock("jobs", &core.LockOptions{TTL: 10 * time.Second})
		must(t, err)
		return l
	}
	first, err := open().Acquire(t.Context())
	must(t, err)
	watcher := connect(t, o)
	granted := make(chan int, 4)
	for i := range 4 {
		l := open()
		go func() {
			lease, err := l.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			granted <- i
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		eventually(t, "it waits", func() bool {
			h, err := watcher.Inspect(t.Context(), "jobs")
			return err == nil && h.Waiters == i+1
		})
	}
	frozen := members[leader(t, members)]
	must(t, frozen.Freeze())
	<-time.After(6 * time.Second)
	must(t, frozen.Resume())
	<-time.After(time.Second)
	must(t, first.Release(t.Context()))
	seen := map[int]bool{}
	for i := range 4 {
		select {
		case got := <-granted:
			if seen[got] {
				t.Errorf("waiter %d was granted it twice", got)
			}
			seen[got] = true
		case <-time.After(testTimeout):
			t.Fatalf("waiter %d was not granted", i)
		}
	}
}
