package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/internal/deliver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

const (
	maxLogLine = 64 << 10
	tailLines  = 12
	// maxTail bounds the bytes kept of a plugin's standard error. After the plugin's death, errors of
	// calls quote these bytes until a new process runs. maxTailLine bounds the bytes of one line.
	maxTail     = wire.MaxText
	maxTailLine = maxTail / 4
)

// tail holds the last lines of a plugin's standard error.
type tail []string

// add appends a line, and drops the oldest lines if the tail then exceeds a limit.
func (t *tail) add(line string) {
	*t = append(*t, wire.BoundTo(line, maxTailLine))
	*t = (*t)[max(0, len(*t)-tailLines):]
	size := 0
	for i, line := range slices.Backward(*t) {
		if size += len(line) + len("\n"); size > maxTail {
			*t = (*t)[i+1:]
			return
		}
	}
}

// lineLog turns a plugin's standard error into log records. A JSON line in hclog's format keeps its
// level. Any other line gets level Error if it begins a panic or fatal error, and Debug otherwise.
// To explain a crash, tail keeps the last JSON errors and plain lines, but no stack trace.
type lineLog struct {
	log     *appLog
	secrets *wire.Redactor

	mu    sync.Mutex
	tail  tail
	trace bool // all further lines are the stack trace of a crash
}

func (l *lineLog) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, isPrefix, err := lines.ReadLine()
		for isPrefix && err == nil { // drop the part of the line beyond maxLogLine
			_, isPrefix, err = lines.ReadLine()
		}
		if len(line) > 0 {
			l.line(l.secrets.Text(string(line)))
		}
		if err != nil {
			return
		}
	}
}

func (l *lineLog) line(text string) {
	level, message, attrs, ok := l.parseHclog(text)
	if !ok {
		l.keep(text)
		level = slog.LevelDebug
		if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
			level = slog.LevelError
		}
		l.log.add(level, text, len(text))
		return
	}
	if level >= slog.LevelError {
		l.keep(message + attrText(attrs))
	}
	l.log.add(level, message, len(text), attrs...)
}

func (l *lineLog) keep(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trace = l.trace || strings.HasPrefix(text, "goroutine ")
	if l.trace {
		return
	}
	l.tail.add(text)
}

func (l *lineLog) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tail)
}

func attrText(attrs []slog.Attr) string {
	var b strings.Builder
	for _, a := range attrs {
		b.WriteString(" " + a.String())
	}
	return b.String()
}

var hclogLevels = map[string]slog.Level{
	"trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError,
}

func (l *lineLog) parseHclog(text string) (level slog.Level, message string, attrs []slog.Attr, ok bool) {
	var fields map[string]any
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &fields) != nil {
		return level, "", nil, false
	}
	fields = l.redact(fields).(map[string]any)
	name, _ := fields["@level"].(string)
	level, known := hclogLevels[name]
	if message, ok = fields["@message"].(string); !ok || !known {
		return level, "", nil, false
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !strings.HasPrefix(key, "@") {
			attrs = append(attrs, slog.Any(key, fields[key]))
		}
	}
	return level, message, attrs, true
}

// redact removes secrets from v, which is parsed JSON. A search of the unparsed line could miss a
// secret, because encoders in some languages escape characters that Go's encoder does not escape.
func (l *lineLog) redact(v any) any {
	switch v := v.(type) {
	case string:
		return l.secrets.Text(v)
	case []any:
		for i := range v {
			v[i] = l.redact(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[l.secrets.Text(key)] = l.redact(value)
		}
		return out
	}
	return v
}

const (
	// maxLogQueue bounds the total size, in bytes, of the records that wait for the logger.
	maxLogQueue = 1 << 20
	// recordSize is the assumed size of a record without its text, in bytes.
	recordSize = 256
	// logMoment is the longest time that Close or a failing Open waits for the application's logger.
	logMoment = 500 * time.Millisecond
)

// appLog passes log records to the application's logger from a separate goroutine. The goroutine
// that reads the plugin's standard error must not wait for the logger, which may block.
type appLog struct {
	log   *slog.Logger
	queue *deliver.Queue[slog.Record]
}

func newAppLog(log *slog.Logger) *appLog {
	a := &appLog{log: log}
	a.queue = deliver.New(maxLogQueue, a.deliver)
	return a
}

// add queues a record. size is the approximate size in bytes of its message and attributes.
func (a *appLog) add(level slog.Level, message string, size int, attrs ...slog.Attr) {
	r := slog.NewRecord(time.Now(), level, message, 0)
	r.AddAttrs(attrs...)
	a.queue.Add(r, size+recordSize)
}

func (a *appLog) flush(ctx context.Context) { a.queue.Flush(ctx, logMoment) }

// deliver logs the record r. If records were dropped before r, deliver logs their number in a
// separate warning, because the logger may ignore records of r's level.
func (a *appLog) deliver(r slog.Record, dropped uint64) {
	if dropped > 0 {
		a.log.Warn("the logger is too slow, and lines of the plugin were dropped", "dropped", dropped)
	}
	ctx := context.Background()
	if a.log.Enabled(ctx, r.Level) {
		_ = a.log.Handler().Handle(ctx, r) // ignore the error, as package slog does, because no caller could receive it
	}
}
