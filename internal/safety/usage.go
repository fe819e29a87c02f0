package safety

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/lockbench/lockbench/internal/host"
)

// What a process may use more at the end than when it was first looked at. A
// plugin collects its garbage when it likes to, and what its heap has grown to
// once stays resident for minutes: one with 5 MB in objects goes from
// 35 MB to 70 when a pool is given back, and another from 41 to 106 when its
// servers have been started again. Its pools of connections grow when the
// store is slow, to a bound: 48 at most.
const (
	moreGoroutines  = 16
	moreDescriptors = 56
	moreHeap        = 2 << 20
	moreResident    = 80 << 20
)

// Allowance says what a process may use more, in one line.
func Allowance() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d MB of heap, %d MB resident", moreGoroutines, moreDescriptors, moreHeap>>20, moreResident>>20)
}

// Usage is what one process of a soak has used, at rest: after its first round,
// and after its last one.
type Usage struct {
	Who         string // "rival", "plugin of the rival"
	Pid         int
	First, Last host.Use
}

// Grown says what has grown by more than [Allowance]; "" for nothing.
func (u Usage) Grown() string {
	for _, one := range []struct {
		what        string
		first, last int
		more        int
	}{
		{"goroutines", u.First.Goroutines, u.Last.Goroutines, moreGoroutines},
		{"descriptors", u.First.Descriptors, u.Last.Descriptors, moreDescriptors},
		{"bytes of heap", int(u.First.Heap), int(u.Last.Heap), moreHeap},
		{"bytes resident", int(u.First.Resident), int(u.Last.Resident), moreResident},
	} {
		if one.last > one.first+one.more {
			return fmt.Sprintf("%s %d: %d %s, then %d", u.Who, u.Pid, one.first, one.what, one.last)
		}
	}
	return ""
}

// look reads what a host and its plugin use. Where the system does not say,
// there is nothing to see.
func (w *system) look(ctx context.Context, who string, p *host.Process) error {
	if p == nil || !p.Alive() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	host, plugin, err := p.Use(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the %s is looked at: %w", who, err)
	}
	w.used(who, p.Pid(), host)
	w.used("plugin of the "+who, p.PluginPid(), plugin)
	return nil
}

func (w *system) used(who string, pid int, u host.Use) {
	i := slices.IndexFunc(w.found.Usages, func(l *Usage) bool { return l.Pid == pid })
	if i < 0 {
		i = len(w.found.Usages)
		w.found.Usages = append(w.found.Usages, &Usage{Who: who, Pid: pid, First: u})
	}
	w.found.Usages[i].Last = u
}
