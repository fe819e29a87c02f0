package proc

import (
	"context"
	"time"
)

// Sleep waits for d, and returns false when ctx ends before. It returns at once
// when d is not above 0.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
