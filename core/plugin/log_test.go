package plugin

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

func TestLinesBecomeRecords(t *testing.T) {
	var out bytes.Buffer
	secrets := &wire.Redactor{}
	secrets.SetConfig(map[string]string{"password": "hunter2"}, looksSecret)
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	l := &lineLog{secrets: secrets, log: newAppLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 4, ReplaceAttr: drop})))}
	l.read(strings.NewReader(strings.Join([]string{
		`{"@level":"warn","@message":"slow","@timestamp":"now","ms":12,"as":"hunter2"}`,
		`{"@level":"error","@message":"gone","err":"reset"}`,
		`{"@message":1,"@level":"info"}`, // go-plugin's reader would panic on this line
		`{"@level":"trace","@message":"hop"}`,
		`plain text`,
		strings.Repeat("long", 1<<16),
		"",
		"panic: out of luck",
		"goroutine 1 [running]:",
		"main.main()",
	}, "\n")))
	l.log.queue.Flush(t.Context(), time.Minute)
	want := []string{
		"level=WARN msg=slow as=[secret] ms=12",
		"level=ERROR msg=gone err=reset",
		`level=DEBUG msg="{\"@message\":1,\"@level\":\"info\"}"`,
		"level=DEBUG-4 msg=hop",
		`level=DEBUG msg="plain text"`,
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != 9 || !slices.Equal(got[:5], want) {
		t.Errorf("got %d lines %q, want %q first", len(got), got[:5], want)
	}
	if len(got[5]) > maxLogLine+100 || got[6] != `level=ERROR msg="panic: out of luck"` {
		t.Errorf("got a line of %d bytes, then %q", len(got[5]), got[6])
	}
	last := l.last()
	if size := len(strings.Join(last, "\n")); size > maxTail {
		t.Errorf("the last lines have %d bytes", size)
	}
	if len(last) != 5 || last[0] != "gone err=reset" || last[4] != "panic: out of luck" {
		t.Errorf("the last lines are %q", last)
	}
}

func TestHubTellsEveryWatcherInOrder(t *testing.T) {
	var h watchers
	var first, second []driver.NoticeKind
	removeFirst := h.add(func(n driver.Notice) { first = append(first, n.Kind) })
	h.notify(driver.Notice{Kind: driver.NoticeDown, Plugin: true})
	defer h.add(func(n driver.Notice) { second = append(second, n.Kind) })()
	h.notify(driver.Notice{Kind: driver.NoticeLost})
	h.notify(driver.Notice{Kind: driver.NoticeUp, Plugin: true})
	removeFirst()
	h.notify(driver.Notice{Kind: driver.NoticeLost})
	wantFirst := []driver.NoticeKind{driver.NoticeDown, driver.NoticeLost, driver.NoticeUp}
	wantSecond := []driver.NoticeKind{driver.NoticeDown, driver.NoticeLost, driver.NoticeUp, driver.NoticeLost}
	if !slices.Equal(first, wantFirst) || !slices.Equal(second, wantSecond) {
		t.Errorf("got %v and %v, want %v and %v", first, second, wantFirst, wantSecond)
	}
	// A watcher that is added after NoticeUp gets no notice of the outage.
	h.add(func(n driver.Notice) { t.Errorf("told of %+v", n) })()
}

func TestBackoff(t *testing.T) {
	if backoff(1) != 0 {
		t.Errorf("the first restart waits %v: leases wait for it", backoff(1))
	}
	for n := 2; n <= crashLoop; n++ {
		if d := backoff(n); d < backoffFirst/2 || d >= 3*maxBackoff/2 {
			t.Errorf("restart %d waits %v", n, d)
		}
	}
	if d := backoff(crashLoop + 1); d < slowPace/2 || d >= 3*slowPace/2 {
		t.Errorf("a crash loop waits %v", d)
	}
}
