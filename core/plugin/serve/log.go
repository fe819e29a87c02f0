package serve

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// newLogger returns a logger that writes JSON lines to the plugin's standard error, as a host
// expects them. The logger writes all levels, because the host chooses which levels to keep.
func newLogger(w io.Writer, redact *wire.Redactor) *slog.Logger {
	return slog.New(slog.NewJSONHandler(redacting{w, redact}, &slog.HandlerOptions{
		Level:       slog.LevelDebug,
		ReplaceAttr: hclogNames,
	}))
}

// hclogNames gives hclog's names to slog's attributes for time, level and message. It also checks
// the types of the attributes, because a backend may give one of these names to its own attribute.
func hclogNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch v := a.Value.Any().(type) {
	case slog.Level:
		if a.Key == slog.LevelKey {
			return slog.String("@level", strings.ToLower(v.String()))
		}
	case time.Time:
		if a.Key == slog.TimeKey {
			return slog.String("@timestamp", v.Format("2006-01-02T15:04:05.000000Z07:00"))
		}
	case string:
		if a.Key == slog.MessageKey {
			a.Key = "@message"
		}
	}
	return a
}

// redacting removes the secrets in lines that it writes to w. Each Write must be one whole line.
type redacting struct {
	w      io.Writer
	redact *wire.Redactor
}

func (r redacting) Write(line []byte) (int, error) {
	if _, err := io.WriteString(r.w, r.redact.Text(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

func secretKey(spec driver.Spec) func(name, value string) bool {
	return func(name, _ string) bool {
		i := slices.IndexFunc(spec.Keys, func(k driver.Key) bool { return k.Name == name })
		return i < 0 || spec.Keys[i].Secret // an unknown key may be a misspelt secret
	}
}
