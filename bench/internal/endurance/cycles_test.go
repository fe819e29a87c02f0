package endurance_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	// cyclers are the callers that acquire and release.
	cyclers = 64
	// hostGrowth and pluginGrowth are what memory may grow by over all cycles,
	// in bytes. A leak of 20 bytes a cycle would be 20 MB in a million. What is
	// resident grows by a few MB without one, and more under the race detector.
	hostGrowth   = 1 << 20
	pluginGrowth = 16 << 20
)

// TestMillionCycles: acquire and release, over and over on ever new names,
// leave the memory of host and plugin where it was.
func TestMillionCycles(t *testing.T) {
	b := start(t, kinds.Of("redis")).open(t)
	client := core.New(b, nil)
	defer client.Close(t.Context())
	pid, ok := plugin.ProcessOf(b)
	if !ok {
		t.Fatal("the plugin has no process")
	}

	total := count(50_000, 1_000_000)
	// What grows once, such as pools and the heaps they live in, grows now.
	cycles(t, client, "warm-up", int64(total)/5)
	host, resident := heapInUse(), residentOf(t, pid)
	cycles(t, client, "cycle", int64(total))
	hostAfter, residentAfter := heapInUse(), residentOf(t, pid)

	t.Logf("%d cycles: heap of the host %d -> %d bytes, resident memory of the plugin %d -> %d bytes",
		total, host, hostAfter, resident, residentAfter)
	if hostAfter > host+hostGrowth {
		t.Errorf("the host grew by %d bytes in %d cycles", hostAfter-host, total)
	}
	if residentAfter > resident+pluginGrowth {
		t.Errorf("the plugin grew by %d bytes in %d cycles", residentAfter-resident, total)
	}
}

// cycles lets callers acquire and release total new locks together.
func cycles(t *testing.T, client *core.Client, name string, total int64) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range cyclers {
		work.Go(func() {
			for n := next.Add(1); n <= total; n = next.Add(1) {
				if err := once(t.Context(), client, fmt.Sprint(name, " ", n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}

func once(ctx context.Context, client *core.Client, name string) error {
	lock, err := client.Lock(name, nil)
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// heapInUse is what this process holds after a collection, in bytes.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of in between
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// residentOf is the resident memory of a process in bytes.
func residentOf(t *testing.T, pid int) uint64 {
	t.Helper()
	n, err := proc.Resident(pid)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
