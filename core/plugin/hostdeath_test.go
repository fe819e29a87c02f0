package plugin_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// longTTL exceeds each wait of a test. So a lock that becomes free was released and did not expire.
const longTTL = 4 * timeout

// deadHost starts a host that acquires locks and waits for one more lock, and then kills the host.
func deadHost(t *testing.T, s *store, policy plugin.Policy, locks int) (killed time.Time, host, pluginPid int) {
	t.Helper()
	h, err := plugintest.StartHost(t.Context(), plugintest.HostSpec{
		Plugin: "far", Path: link(t, "far"), Config: s.config(), OnHostDeath: policy,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range locks {
		if _, err := h.Acquire(t.Context(), lockName(i), longTTL, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.local.TryAcquire(t.Context(), request("ours", "o")); err != nil {
		t.Fatal(err)
	}
	if err := h.Enqueue(t.Context(), "ours", longTTL, 0); err != nil {
		t.Fatal(err)
	}
	if pluginPid, err = h.PluginPid(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed = time.Now()
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	return killed, h.Pid(), pluginPid
}

func lockName(i int) string { return fmt.Sprintf("lock/%d", i) }

func (s *store) holder(t *testing.T, name string) driver.Holder {
	t.Helper()
	h, err := s.local.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHostDeathReleasesEverything(t *testing.T) {
	s := newStore(t)
	const locks = 50
	killed, host, pid := deadHost(t, s, plugin.Policy{}, locks)
	for i := range locks {
		eventually(t, timeout, lockName(i)+" is free", func() bool { return !s.holder(t, lockName(i)).Held() })
	}
	t.Logf("%d locks were free %v after the kill", locks, time.Since(killed))
	eventually(t, timeout, "the dead host has left the queue", func() bool { return s.holder(t, "ours").Waiters == 0 })
	if h := s.holder(t, "ours"); h.Owner != "o" {
		t.Errorf("our own lock is held by %+v", h)
	}
	eventually(t, timeout, "the plugin has ended", func() bool { return !plugintest.Running(pid) })
	eventually(t, timeout, "its socket directory is gone", func() bool { return len(socketDirsOf(t, host)) == 0 })
}

func TestHostDeathDelay(t *testing.T) {
	s := newStore(t)
	const delay = 700 * time.Millisecond
	killed, _, pid := deadHost(t, s, plugin.Policy{Delay: delay}, 1)
	eventually(t, timeout, "the lock is free", func() bool { return !s.holder(t, lockName(0)).Held() })
	if took := time.Since(killed); took < delay {
		t.Errorf("the lock was free after %v, before the delay of %v", took, delay)
	}
	eventually(t, timeout, "the plugin has ended", func() bool { return !plugintest.Running(pid) })
}

// Policy.Delay may exceed the TTL, because the plugin renews a dead host's leases during the delay.
func TestHostDeathDelayBeyondTTL(t *testing.T) {
	s := newStore(t)
	const ttl, delay = 300 * time.Millisecond, 2 * time.Second
	h, err := plugintest.StartHost(t.Context(), plugintest.HostSpec{
		Plugin: "far", Path: link(t, "far"), Config: s.config(), OnHostDeath: plugin.Policy{Delay: delay},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Acquire(t.Context(), "jobs", ttl, 0); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, timeout, "the lock is free", func() bool { return !s.holder(t, "jobs").Held() })
	if took := time.Since(killed); took < delay {
		t.Errorf("the lock was free after %v, before the delay of %v", took, delay)
	}
}

func TestHostDeathAbandon(t *testing.T) {
	s := newStore(t)
	_, _, pid := deadHost(t, s, plugin.Policy{Abandon: true}, 1)
	eventually(t, timeout, "the plugin has ended", func() bool { return !plugintest.Running(pid) })
	if h := s.holder(t, lockName(0)); !h.Held() {
		t.Error("the lock was released")
	}
}

// The lifeline is a pipe from the host. If only this pipe ends, the host does not count as dead.
func TestLifelineAloneIsNoDeath(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	if _, err := b.TryAcquire(t.Context(), request("jobs", "a")); err != nil {
		t.Fatal(err)
	}
	before, _ := plugin.ProcessOf(b)
	if err := plugin.CloseLifeline(b); err != nil {
		t.Fatal(err)
	}
	// Without a pidfd, the plugin polls often for 2 s after the pipe's end. Wait for longer than that.
	<-time.After(2500 * time.Millisecond)
	if now, _ := plugin.ProcessOf(b); now != before || !s.holder(t, "jobs").Held() {
		t.Errorf("process %d became %d, the lock is %+v", before, now, s.holder(t, "jobs"))
	}
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// Open removes the socket directories of hosts that died together with their plugins.
func TestStaleDirectoriesAreSwept(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(temp, fmt.Sprintf("lockplugin-%d-123", ended.Process.Pid))
	// This directory belongs to a host that had the process id of this test
	// before the container was restarted.
	former := filepath.Join(temp, fmt.Sprintf("lockplugin-%d-123", os.Getpid()))
	other := filepath.Join(temp, "lockplugin-x-123")
	// This directory belongs to a host in another PID namespace, so the id in its name is useless.
	claimed := filepath.Join(temp, fmt.Sprintf("lockplugin-%d-456", ended.Process.Pid))
	young := filepath.Join(temp, fmt.Sprintf("lockplugin-%d-789", ended.Process.Pid))
	long := time.Now().Add(-time.Hour)
	for _, dir := range []string{stale, former, other, claimed, young} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if dir == young {
			continue
		}
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	claim, err := os.Open(claimed)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if err := syscall.Flock(int(claim.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	b, err := plugin.Open(t.Context(), "far", &plugin.Options{Path: link(t, "far"), Config: s.config(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for dir, want := range map[string]bool{stale: false, former: false, other: true, claimed: true, young: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %t", dir, !want)
		}
	}
}
