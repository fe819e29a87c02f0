// Package host runs hosts as operating system processes, which can be killed and frozen from
// outside. Each host takes locks through its own plugin or library. It reports each hold of a lock:
// the grant, the renewals, the last check that found the lease valid, and the loss or release. It
// also reports writes to files under the lock.
//
// [Process.Work] starts callers that acquire, hold and release locks over and over.
// [Process.Acquire] starts callers that hold their locks until they are told to release them. For
// measurements, a [Process] is a [load.Locker], and [Process.Cycle] runs callers in a loop.
//
// A host process runs the same binary as its parent, so main (or TestMain) must call [Main] first.
// The host sends each report at once, so that few reports are lost when the host is killed.
package host

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

// role is the environment variable that makes Main run a host. Its name must not change, because
// the binary in Spec.Program may be of another version.
const role = "LOCKBENCH_RECORDER"

// Main runs a host and then ends this process, if the process was started as a host. Otherwise Main
// does nothing. Call it first in main or TestMain.
func Main() { proc.Become(role, "host", openAgent) }

// Spec says through which plugin or library a host takes its locks, and which files
// it writes while it holds them.
type Spec struct {
	Backend string        `json:"backend"`
	Path    string        `json:"path"` // path of the plugin binary
	Config  driver.Config `json:"config"`
	NoMTLS  bool          `json:"no_mtls,omitempty"`
	// Baseline is the name of a library that the host uses instead of the plugin, or "" for none.
	Baseline string `json:"baseline,omitempty"`
	Host     int    `json:"host"` // the host's number in its reports
	// Zero is a moment on the machine's clock. The host reports all times as times since Zero, so that
	// no other process has to convert them.
	Zero int64 `json:"zero_ns,omitempty"`
	// Resources are the files that the host writes to. A host without such files is a measured host:
	// it writes nothing, logs nothing and has no heartbeat, so that it disturbs no measurement.
	Resources Resources `json:"resources"`
	// TempDir is where the host and its plugin make their temporary files. ""
	// means the system's directory.
	TempDir string `json:"-"`
	// Program is the program to start, or "" for this program. Its main must call [Main].
	Program string `json:"-"`
}

func (s Spec) measured() bool { return s.Resources.Dir == "" }

// Process is a host process as its parent sees it. Any goroutine may call its methods.
type Process struct {
	*proc.Child

	mu      sync.Mutex
	last    int64               // number of the last order that needs an answer
	pending map[int64]chan note // the channels of orders that wait for their answer
	change  chan struct{}       // closed and replaced at each report
	seen    results.Seen
	plugin  int // process id; 0 for a library
	asking  bool
	// releaseNs is the time at which the last reported release began.
	releaseNs int64
	idle      int
	follow    func(*results.Hold, *results.Call)
}

// Start starts a host and returns when the host has opened its plugin.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p := &Process{
		Child:   &proc.Child{Role: role, Program: s.Program},
		pending: map[int64]chan note{}, change: make(chan struct{}),
	}
	if s.TempDir != "" {
		p.Env = []string{"TMPDIR=" + s.TempDir}
	}
	if err := proc.Start(ctx, p.Child, s, p.take); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return p, nil
}

func (p *Process) take(n note) {
	p.mu.Lock()
	if n.ID != 0 {
		answer := p.pending[n.ID]
		delete(p.pending, n.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- n
		}
		return
	}
	p.see(n)
	close(p.change)
	p.change = make(chan struct{})
	follow := p.follow
	p.mu.Unlock()
	if follow != nil && (n.Lease != nil || n.Call != nil) {
		follow(n.Lease, n.Call)
	}
}

// ask sends an order and waits for the answer. When ctx ends, it cancels the order but still waits,
// because the answer may say that a lock was granted.
func (p *Process) ask(ctx context.Context, o order) (note, error) {
	answer := make(chan note, 1)
	p.mu.Lock()
	p.last++
	o.ID = p.last
	p.pending[o.ID] = answer
	p.mu.Unlock()
	if p.Send(o) != nil {
		return note{}, proc.ErrEnded
	}
	stop := context.AfterFunc(ctx, func() {
		_ = p.Send(order{Op: opCancel, Target: o.ID}) // an error means that the process has ended
	})
	defer stop()
	select {
	case n := <-answer:
		return n, n.err(ctx)
	case <-p.Ended():
	}
	select {
	case n := <-answer: // the host may have answered just before it ended
		return n, n.err(ctx)
	default:
		return note{}, proc.ErrEnded
	}
}

func (p *Process) see(n note) {
	switch {
	case n.Lease != nil:
		p.lease(*n.Lease)
	case n.Write != nil:
		p.seen.Writes = append(p.seen.Writes, *n.Write)
	case n.Halt != nil:
		p.seen.Halts = append(p.seen.Halts, *n.Halt)
	case n.Call != nil:
		p.seen.Calls = append(p.seen.Calls, *n.Call)
	case n.Plugin != 0:
		p.plugin = n.Plugin
	case n.Asking != nil:
		p.asking = *n.Asking
	case n.Idle:
		p.idle++
	}
}

// lease stores the newest state of a hold. It searches the holds from the end, because the hold is
// usually one of the last.
func (p *Process) lease(l results.Hold) {
	if l.ReleasedNs == 0 {
		p.releaseNs = max(p.releaseNs, l.ReleaseNs)
	}
	for i := len(p.seen.Holds) - 1; i >= 0; i-- {
		if of := &p.seen.Holds[i]; of.Name == l.Name && of.Token == l.Token && of.GrantedNs == l.GrantedNs {
			*of = l
			return
		}
	}
	p.seen.Holds = append(p.seen.Holds, l)
}

// Follow sets the function that is called for reports: on(hold, nil) for a report about a hold, and
// on(nil, call) for a call that has returned. Only one goroutine makes these calls. Follow must be
// called before the first report.
func (p *Process) Follow(on func(*results.Hold, *results.Call)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follow = on
}

// Await waits until the given function returns true. It calls this function at once and after each
// report, with all reports so far. It returns an error if ctx or the host's process ends first.
func (p *Process) Await(ctx context.Context, until func(results.Seen) bool) error {
	for over := false; ; {
		p.mu.Lock()
		done, change := until(p.seen), p.change
		p.mu.Unlock()
		switch {
		case done:
			return nil
		case over:
			return fmt.Errorf("host: %w", proc.ErrEnded)
		}
		select {
		case <-change:
		case <-p.Ended():
			over = true // no reports come after this last check
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Seen returns the reports since the last call of Forget, and the reports that Forget has kept.
func (p *Process) Seen() results.Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen
	s.Holds, s.Calls = slices.Clone(s.Holds), slices.Clone(s.Calls)
	return s
}

// Forget drops all reports except those about holds that have not ended.
func (p *Process) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = results.Seen{Holds: slices.DeleteFunc(slices.Clone(p.seen.Holds), func(l results.Hold) bool { return !l.Held() })}
}

// PluginPid returns the process id of the plugin that the host started last, or
// 0 for a library.
func (p *Process) PluginPid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plugin
}

// Asking reports whether any caller of a workload is asking for a lock now. The result releaseNs is
// the time, by [proc.Now], at which a caller last began to release a lock.
func (p *Process) Asking() (asking bool, releaseNs int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking, p.releaseNs
}

// Acquire makes the host ask for every lock of w, for up to timeout. The host holds each lock, and
// writes to its files, until the lock is lost or Release is called. Acquire returns at once.
func (p *Process) Acquire(w Workload, timeout time.Duration) error {
	end := w.First + w.Names
	w.Names, w.Callers, w.Limit, w.Hold, w.Once = 1, 1, Range{timeout, timeout}, Forever, true
	for ; w.First < end; w.First++ {
		if err := p.Work(w); err != nil {
			return err
		}
	}
	return nil
}

// Locks returns a workload with the given number of locks. A name is the prefix plus a number.
func Locks(prefix string, count int, ttl time.Duration) Workload {
	return Workload{Kind: results.OpLock, Prefix: prefix, Names: count, TTL: ttl}
}

// Release makes all callers of the host stop waiting and release their locks. It returns when all
// releases have returned.
func (p *Process) Release(ctx context.Context) error { return p.ReleaseFrom(ctx, 0) }

// ReleaseFrom is like Release, but ends only workloads whose First is at least the argument first.
func (p *Process) ReleaseFrom(ctx context.Context, first int) error {
	p.mu.Lock()
	before := p.idle
	p.mu.Unlock()
	if err := p.Send(order{Op: opRelease, First: first}); err != nil {
		return err
	}
	return p.Await(ctx, func(results.Seen) bool { return p.idle > before })
}

// Use says how much of each resource a process used at one moment. Goroutines and Heap are known
// only for hosts, and not for plugins.
type Use struct {
	Goroutines  int    `json:"goroutines,omitempty"`
	Heap        uint64 `json:"heap_bytes,omitempty"` // live objects after a garbage collection
	Resident    uint64 `json:"resident_bytes,omitempty"`
	Descriptors int    `json:"descriptors,omitempty"`
	Threads     int    `json:"threads,omitempty"`
}

func (u Use) String() string {
	text := fmt.Sprintf("%2d descriptors, %2d threads, %5.1f MB resident", u.Descriptors, u.Threads, float64(u.Resident)/1e6)
	if u.Goroutines > 0 {
		text += fmt.Sprintf(", %4.1f MB heap, %3d goroutines", float64(u.Heap)/1e6, u.Goroutines)
	}
	return text
}

// Use collects the host's garbage and then reads which resources the host and its
// plugin use. On systems without /proc it returns an error wrapping fs.ErrNotExist.
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

// ownUse collects garbage and returns the figures that only this process can read. Heap does not
// include stacks, because the runtime keeps the memory of an ended stack for a while.
func ownUse() *Use {
	runtime.GC()
	debug.FreeOSMemory() // a second collection, for memory that finalizers have freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return &Use{Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc}
}

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
