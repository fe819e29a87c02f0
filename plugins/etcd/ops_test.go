package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
)

// TestMaxTxnOps checks a server that allows few operations in a transaction. A host with many
// more leases than that limit must keep all leases, and all other operations must work too.
func TestMaxTxnOps(t *testing.T) {
	for _, most := range []int{64, 32, 8} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel() // most of its time is waiting
			s := start(t, &etcdserver.Options{Args: []string{fmt.Sprint("--max-txn-ops=", most)}})
			c := hosts(t, s, 1)[0]
			began := time.Now()
			leases := make([]*core.Lease, 200)
			for i := range leases {
				l, err := c.Lock(fmt.Sprint("job ", i), &core.LockOptions{TTL: 6 * time.Second})
				must(t, err)
				leases[i], err = l.TryAcquire(t.Context())
				must(t, err)
			}
			for i, l := range leases {
				eventually(t, "it is renewed", func() bool {
					if err := l.Err(); err != nil {
						t.Fatalf("lease %d of %d: %v", i, len(leases), err)
					}
					return l.Deadline().After(began.Add(12 * time.Second))
				})
			}
			b := connect(t, on(s)) // b does not know the limit yet
			ops := make([]driver.Op, len(leases)+1)
			for i := range ops {
				ops[i] = driver.Op{Kind: driver.OpAcquire, Request: lock(fmt.Sprint("job ", i), "b")}
			}
			for i, res := range b.Batch(t.Context(), ops) {
				if held := errors.Is(res.Err, driver.ErrHeld); held != (i < len(leases)) || !held && res.Err != nil {
					t.Errorf("acquire of %q: %v", ops[i].Name, res.Err)
				}
			}
			n := 0
			must(t, b.List(t.Context(), "", func(driver.Holder) bool { n++; return true }))
			if n != len(ops) {
				t.Errorf("%d of %d are listed", n, len(ops))
			}
			use(t, b, "all of it")
		})
	}
}
