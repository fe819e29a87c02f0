package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// blocker counts log lines as a slog handler. It first waits until the test closes the field open.
type blocker struct {
	open           chan struct{}
	lines, dropped *atomic.Uint64
}

func newBlocker() blocker {
	return blocker{open: make(chan struct{}), lines: new(atomic.Uint64), dropped: new(atomic.Uint64)}
}

func (g blocker) Enabled(context.Context, slog.Level) bool { return true }
func (g blocker) WithAttrs([]slog.Attr) slog.Handler       { return g }
func (g blocker) WithGroup(string) slog.Handler            { return g }
func (g blocker) Handle(_ context.Context, r slog.Record) error {
	<-g.open
	if r.Message == "chatter" {
		g.lines.Add(1)
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "dropped" {
			g.dropped.Add(a.Value.Uint64())
		}
		return true
	})
	return nil
}

// TestBlockedLoggerBlocksNoPlugin checks that, while the logger blocks, the plugin can write its
// log and is replaced when it dies. Dropped log lines must be counted.
func TestBlockedLoggerBlocksNoPlugin(t *testing.T) {
	s, g := newStore(t), newBlocker()
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config(), Logger: slog.New(g)})
	open := sync.OnceFunc(func() { close(g.open) })
	defer open()
	notices := watch(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := b.Inspect(ctx, "chatter"); err != nil {
		t.Fatalf("a plugin that logs 2 MiB: %v", err)
	}
	signalPlugin(t, b, syscall.SIGKILL)
	next(t, notices, driver.NoticeDown)
	next(t, notices, driver.NoticeUp)
	open()
	// The logger must get a record with the number of dropped lines before it gets the next line.
	for end := time.Now().Add(timeout); g.dropped.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d lines and no word of the dropped ones", g.lines.Load())
		}
		if _, err := b.Inspect(ctx, "chatter"); err != nil {
			t.Fatal(err)
		}
	}
}

// deafHost names an environment variable of a host process whose standard error is not read. The
// variable's value is the address of the store that the test backend "far" uses.
const deafHost = "LOCKBENCH_TEST_DEAF_HOST"

type deafReport struct {
	Back    time.Duration // time from the plugin's death to an answer of the next plugin process
	Lost    []string
	Failure string
}

const (
	deafTTL    = 2 * time.Second
	deafLeases = 20
)

func beDeafHost(socket string) {
	report, err := deafRun(socket)
	if err != nil {
		report.Failure = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	os.Exit(0)
}

// deafRun holds leases, kills their plugin, and reports what happens to the leases. Its logger is
// slog's default logger, which writes to standard error.
func deafRun(socket string) (r deafReport, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	path := os.Getenv(deafHost + "_PLUGIN")
	b, err := plugin.Open(ctx, "far", &plugin.Options{Path: path, Config: driver.Config{"address": socket}})
	if err != nil {
		return r, err
	}
	client := core.New(b, nil)
	leases := map[string]*core.Lease{}
	for i := range deafLeases {
		lock, err := client.Lock(lockName(i), &core.LockOptions{TTL: deafTTL})
		if err != nil {
			return r, err
		}
		if leases[lock.Name()], err = lock.Acquire(ctx); err != nil {
			return r, err
		}
	}
	pid, _ := plugin.ProcessOf(b)
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return r, err
	}
	for now, ok := pid, true; !ok || now == pid || client.Check(ctx) != nil; now, ok = plugin.ProcessOf(b) {
		if ctx.Err() != nil {
			return r, errors.New("the plugin does not come back")
		}
		time.Sleep(time.Millisecond)
	}
	r.Back = time.Since(killed)
	time.Sleep(2 * deafTTL)
	for name, lease := range leases {
		if !lease.Valid() {
			r.Lost = append(r.Lost, fmt.Sprintf("%s: %v", name, lease.Err()))
		}
	}
	return r, client.Close(ctx)
}

// TestHostWhoseStderrIsFull checks that a host keeps its leases when its plugin dies while every
// log line blocks in write(2). In a service, log lines block when the log collector hangs.
func TestHostWhoseStderrIsFull(t *testing.T) {
	s := newStore(t)
	unread, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	defer full.Close()
	_ = full.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = full.Write(make([]byte, 4096))
	}
	for err = nil; err == nil; {
		_, err = full.Write([]byte{0})
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), deafHost+"="+s.socket, deafHost+"_PLUGIN="+link(t, "far"))
	cmd.Stderr = full
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the host: %v", err)
	}
	var r deafReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	t.Logf("%+v", r)
	if r.Failure != "" || len(r.Lost) > 0 || r.Back > deafTTL {
		t.Errorf("back after %v, lost %d of %d: %q, failure %q", r.Back, len(r.Lost), deafLeases, r.Lost, r.Failure)
	}
}
