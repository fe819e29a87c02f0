package plugin

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/internal/deliver"
)

const (
	// maxLogQueue bounds the total size, in bytes, of the records that wait
	// for the application's logger.
	maxLogQueue = 1 << 20
	// recordSize is the assumed size of a record without its text, in bytes.
	recordSize = 256
	// logMoment is how long Close, and an Open that fails, wait for the application's logger.
	logMoment = 500 * time.Millisecond
)

// appLog passes records to the application's logger, which may block, from a goroutine of its
// own. One of the goroutines that add records empties the pipe of the plugin's standard error.
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

func (a *appLog) warn(message string, err error) {
	a.add(slog.LevelWarn, message, len(message), slog.Any("err", err))
}

func (a *appLog) flush(ctx context.Context) { a.queue.Flush(ctx, logMoment) }

// deliver logs the number of dropped records in a separate record, because r may be below the
// logger's level.
func (a *appLog) deliver(r slog.Record, dropped uint64) {
	if dropped > 0 {
		a.log.Warn("the logger is too slow, and lines of the plugin were dropped", "dropped", dropped)
	}
	ctx := context.Background()
	if a.log.Enabled(ctx, r.Level) {
		_ = a.log.Handler().Handle(ctx, r) // the error is ignored, as slog does: no caller could receive it
	}
}
