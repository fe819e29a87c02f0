package plugin

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/internal/deliver"
)

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
