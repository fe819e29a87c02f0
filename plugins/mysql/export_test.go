package mysql

import "context"

// Purge is what a host does every hour.
func (b *Backend) Purge(ctx context.Context) (int, error) { return b.purge(ctx) }
