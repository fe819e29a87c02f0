// Package observe follows the holders of locks: one lock for a backend that is told of
// changes, and many at a time for one that is not.
package observe

import (
	"bytes"
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Follow calls emit with the holder that look finds, and after each change; see
// driver.Observer. It looks again when the channel that look returns is filled or
// closed, once in every, and when the holder's TTL runs out. With every 0 the
// channel alone counts. It ends with ctx or an error of look.
func Follow(ctx context.Context, every time.Duration, look func() (driver.Holder, <-chan struct{}, error), emit func(driver.Holder)) error {
	var last driver.Holder
	var highest uint64
	for first := true; ; {
		h, told, err := look()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		// A replica that became the master, or nodes that were out of reach, may
		// still show an older holder.
		past := h.Token != 0 && h.Token < highest
		if !past && (first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value)) {
			emit(h)
			last, first, highest = h, false, max(highest, h.Token)
		}
		select {
		case <-told:
		case <-after(every, h):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// after is when to look again at h unless told before.
func after(every time.Duration, h driver.Holder) <-chan time.Time {
	switch {
	case every == 0:
		return nil
	case h.TTL > 0:
		every = min(every, h.TTL+time.Millisecond)
	}
	return time.After(every)
}
