package host

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/lockbench/lockbench/internal/proc"
)

// Use is what a process uses at some moment. Goroutines and Heap are known of
// hosts only, not of their plugins.
type Use struct {
	Goroutines  int    `json:"goroutines,omitempty"`
	Heap        uint64 `json:"heap_bytes,omitempty"`     // objects that a collection left
	Resident    uint64 `json:"resident_bytes,omitempty"` // memory
	Descriptors int    `json:"descriptors,omitempty"`
	Threads     int    `json:"threads,omitempty"`
}

// String shows the figures in one line.
func (u Use) String() string {
	text := fmt.Sprintf("%2d descriptors, %2d threads, %5.1f MB resident", u.Descriptors, u.Threads, float64(u.Resident)/1e6)
	if u.Goroutines > 0 {
		text += fmt.Sprintf(", %4.1f MB heap, %3d goroutines", float64(u.Heap)/1e6, u.Goroutines)
	}
	return text
}

// Use collects the host's garbage and reads what it and its plugin use. On
// systems without /proc that is an error wrapping fs.ErrNotExist.
func (p *Process) Use(ctx context.Context) (host, plugin Use, err error) {
	own, err := p.ask(ctx, order{Op: opUse})
	if err != nil {
		return host, plugin, err
	}
	if host, err = useOf(p.Pid()); err != nil {
		return host, plugin, err
	}
	host.Goroutines, host.Heap = own.Use.Goroutines, own.Use.Heap
	plugin, err = useOf(p.PluginPid())
	return host, plugin, err
}

// ownUse is what this process uses once its garbage is gone, as far as nobody
// else can tell. Stacks are not in it: goroutines are counted, and the runtime
// keeps a span of stacks for the last goroutine that has its own there.
func ownUse() *Use {
	runtime.GC()
	debug.FreeOSMemory() // collects what finalizers have let go of, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return &Use{Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc}
}

// useOf reads what the kernel says of a process.
func useOf(pid int) (u Use, err error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return u, err
	}
	u.Descriptors = len(open)
	if s, known := proc.Of(pid); known {
		u.Threads = s.Threads
	}
	u.Resident, err = proc.Resident(pid)
	return u, err
}
