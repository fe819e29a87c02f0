package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lockbench/lockbench/internal/proc"
)

// ifThere does something to a process, if there is one.
func ifThere(do func(pid int) error, pid int) error {
	if pid <= 0 {
		return nil
	}
	if err := do(pid); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func kill(pid int) error { return ifThere(proc.Kill, pid) }

// freeze stops a process, if there is one, until the event is healed.
func (w *System) freeze(e Event, pid int) error {
	unmark, err := w.mark(pid)
	if err != nil {
		return err
	}
	// Another one that had got its number would go on as well.
	w.Begin(e, func() error { return errors.Join(ifThere(proc.Resume, pid), unmark()) })
	return ifThere(proc.Freeze, pid)
}

// mark notes that a process may be frozen, so that whoever cleans up
// after a search that was killed ends it: it cannot see that by itself. See
// the watcher of package env.
func (w *System) mark(pid int) (unmark func() error, err error) {
	group, err := syscall.Getpgid(pid)
	if pid <= 0 || errors.Is(err, syscall.ESRCH) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(w.Dir), fmt.Sprint("stopped-", pid, ".pid"))
	if err := os.WriteFile(file, fmt.Appendln(nil, group), 0o600); err != nil {
		return nil, err
	}
	return func() error { return os.RemoveAll(file) }, nil
}

// pluginChain are the processes from the one that the host has started to its
// plugin: one, or those of a wrapper before it. On systems without /proc it is
// the first. Without a plugin it is 0.
func (h *Host) pluginChain() []int {
	first := h.PluginPid()
	chain := []int{first}
	if first <= 0 {
		return chain
	}
	children := map[int]int{}
	for pid, s := range proc.All() {
		children[s.Parent] = pid
	}
	for pid := children[first]; pid != 0; pid = children[pid] {
		chain = append(chain, pid)
	}
	return chain
}

// plugin is the process id of the plugin itself, behind its wrapper.
func (h *Host) plugin() int {
	chain := h.pluginChain()
	return chain[len(chain)-1]
}
