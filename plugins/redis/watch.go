package redis

import (
	"context"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Watch tells when the store goes away and returns, or must not grant; see
// driver.Watcher. It goes by the connection for wake-ups, which always has a
// reader.
func (b *Backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	up, last := true, 0
	for {
		link, moved := b.node.Wakeups.Link()
		turned, refused := b.node.Turned.Next(), b.node.Refusal()
		changed := link.Epoch != last
		switch {
		case up && refused != nil:
			emit(driver.Notice{Kind: driver.NoticeDown, Err: refused})
			up = false
		case up && changed && (!link.Up || last > 0):
			emit(driver.Notice{Kind: driver.NoticeDown, Err: redisnode.Explain(link.Err)})
			up = false
		}
		if link.Up && !up && refused == nil {
			emit(driver.Notice{Kind: driver.NoticeUp})
			up = true
		}
		last = link.Epoch
		select {
		case <-turned:
		case <-moved:
		case <-b.background.Done():
			return driver.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
