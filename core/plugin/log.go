package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

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
	level, message, attrs, err := l.parseHclog(text)
	if err != nil {
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

var errNotHclog = errors.New("no hclog line")

var hclogLevels = map[string]slog.Level{
	"trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError,
}

func (l *lineLog) parseHclog(text string) (slog.Level, string, []slog.Attr, error) {
	var fields map[string]any
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &fields) != nil {
		return 0, "", nil, errNotHclog
	}
	fields = l.redact(fields).(map[string]any)
	message, ok := fields["@message"].(string)
	name, _ := fields["@level"].(string)
	level, known := hclogLevels[name]
	if !ok || !known {
		return 0, "", nil, errNotHclog
	}
	var attrs []slog.Attr
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !strings.HasPrefix(key, "@") {
			attrs = append(attrs, slog.Any(key, fields[key]))
		}
	}
	return level, message, attrs, nil
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

// maxHandshake bounds the bytes that the host keeps of a plugin's first line on standard output.
const maxHandshake = 4 << 10

// firstLine is the plugin's standard output. Read returns the first line and
// discards the rest. Without firstLine, go-plugin would stop reading at an
// overlong line, and the plugin would block for ever in a write to the full pipe.
type firstLine struct {
	*os.File
	mu   sync.Mutex
	line []byte
	done bool
}

func (f *firstLine) Read(b []byte) (int, error) {
	if f.passed() {
		_, err := io.Copy(io.Discard, f.File)
		return 0, ended(err)
	}
	n, err := f.File.Read(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	line, _, over := bytes.Cut(b[:n], []byte("\n"))
	if over {
		n = len(line) + 1
	}
	f.line = append(f.line, line[:min(len(line), maxHandshake-len(f.line))]...)
	f.done = over
	if len(f.line) == maxHandshake {
		return n, io.EOF // too long for a handshake, so the start fails and ends the process
	}
	if err != nil {
		err = ended(err)
	}
	return n, err
}

func (f *firstLine) passed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// ended returns io.EOF if err is nil, as after io.Copy, or if err is os.ErrDeadlineExceeded.
func ended(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return io.EOF
	}
	return err
}

func (f *firstLine) text() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.TrimSpace(string(f.line))
}

// closeAll skips nil files.
func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}
