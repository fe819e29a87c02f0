package plugin

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// FuzzStderr reads arbitrary bytes as the standard error of a plugin. It checks that reading
// ends, that only a few lines of bounded length are kept, and that no secret is logged.
func FuzzStderr(f *testing.F) {
	const secret = `hush"hush`
	f.Add([]byte(`{"@level":"error","@message":"gone","err":"hush\"hush","n":1e999}` + "\nplain hush\"hush\npanic: \x1b[31m\n\ngoroutine 1 [running]:\n"))
	f.Add([]byte(`{"@message":1,"@level":"info"}` + "\r\n{\"@level\":\"warn\",\"@message\":\"\\u0068ush\\\"hush\",\"a\":[{\"b\":\"hush\\u0022hush\"}]}"))
	f.Add(bytes.Repeat([]byte("long\n"), 20))
	f.Fuzz(func(t *testing.T, stderr []byte) {
		var out bytes.Buffer
		l := &lineLog{secrets: &wire.Redactor{}, log: newAppLog(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))}
		l.secrets.SetConfig(map[string]string{"password": secret}, looksSecret)
		l.read(bytes.NewReader(stderr))
		l.log.queue.Flush(t.Context(), time.Minute)
		last := l.last()
		for _, line := range last {
			if len(line) > maxTailLine || strings.Contains(line, secret) {
				t.Errorf("%q is kept", line)
			}
		}
		if len(last) > tailLines || strings.Contains(out.String(), `hush\"hush`) {
			t.Errorf("%d lines are kept, and logged is %s", len(last), out.String())
		}
	})
}
