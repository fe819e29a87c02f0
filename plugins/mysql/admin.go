package mysql

import (
	"context"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// listAtOnce is how many locks one query of List reads.
const listAtOnce = 500

// List reads held locks in pages, so that none of them is read for long: what
// changes meanwhile may be seen or not.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	for after := ""; ; {
		page, err := do(ctx, b.link, "list", prefix, func(ctx context.Context) ([]driver.Holder, error) {
			return b.holders(ctx, statement.List(b.table, prefix, after, listAtOnce))
		})
		if err != nil {
			return err
		}
		for _, h := range page {
			if !emit(h) {
				return nil
			}
			after = h.Name
		}
		if len(page) < listAtOnce/2 { // some may have expired while they were read
			return nil
		}
	}
}

// Break is one statement, and a second one if somebody waits.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return b.breaks.one(ctx, driver.Request{Name: name, Owner: "operator", Token: token}).Err
}
