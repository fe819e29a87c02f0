package plugin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/internal/proc"
)

// timeout bounds each wait of a test, and is long enough for a busy machine.
const timeout = 30 * time.Second

// prompt fails the test if the function do takes longer than limit. The time of do does not
// include stalls, in which this process did not run.
func prompt(t *testing.T, limit time.Duration, what string, do func()) {
	t.Helper()
	if took := proc.Ran(do); took > limit {
		t.Errorf("%v %s, want no more than %v", took, what, limit)
	}
}

func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// things holds the resources that a plugin must not leave behind.
type things struct {
	children    []int
	descriptors int
	dirs        []string
	goroutines  goleak.Option
}

func census(t testing.TB) things {
	t.Helper()
	return things{children(t), descriptors(t), socketDirs(t), goleak.IgnoreCurrent()}
}

func (before things) check(t testing.TB) {
	t.Helper()
	var now things
	same := func() bool {
		now = things{children: children(t), descriptors: descriptors(t), dirs: socketDirs(t)}
		return fmt.Sprint(now.children, now.dirs) == fmt.Sprint(before.children, before.dirs) &&
			now.descriptors <= before.descriptors
	}
	for end := time.Now().Add(timeout); !same(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("left behind: child processes %v, were %v; %d descriptors, were %d; directories %v, were %v",
				now.children, before.children, now.descriptors, before.descriptors, now.dirs, before.dirs)
			return
		}
	}
	if err := goleak.Find(before.goroutines); err != nil {
		t.Error(err)
	}
}

func children(t testing.TB) (pids []int) {
	t.Helper()
	return childrenOf(t, os.Getpid())
}

func childrenOf(t testing.TB, parent int) (pids []int) {
	t.Helper()
	for pid, s := range proc.All() {
		if s.Parent == parent {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func descriptors(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func socketDirs(t testing.TB) []string { return socketDirsOf(t, os.Getpid()) }

func socketDirsOf(t testing.TB, host int) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("lockplugin-%d-*", host)))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func itoa(n int) string { return strconv.Itoa(n) }

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
