package wire

import (
	"context"
	"fmt"

	"github.com/lockbench/lockbench/core/driver"
)

var (
	errConfigured    = fmt.Errorf("%w: this plugin is configured already", driver.ErrInvalid)
	errNotConfigured = fmt.Errorf("%w: this plugin is not configured yet", driver.ErrInvalid)
)

// unconfigured is the backend of a plugin until Configure has succeeded.
type unconfigured struct{}

func (unconfigured) TryAcquire(context.Context, driver.Request) (uint64, error) {
	return 0, errNotConfigured
}
func (unconfigured) Renew(context.Context, driver.Request) error    { return errNotConfigured }
func (unconfigured) Release(context.Context, driver.Request) error  { return errNotConfigured }
func (unconfigured) Withdraw(context.Context, string, string) error { return errNotConfigured }
func (unconfigured) Proclaim(context.Context, driver.Request) error { return errNotConfigured }
func (unconfigured) Check(context.Context) error                    { return errNotConfigured }
func (unconfigured) Close(context.Context) error                    { return nil }
func (unconfigured) Properties() driver.Properties                  { return driver.Properties{} }
func (unconfigured) Inspect(context.Context, string) (driver.Holder, error) {
	return driver.Holder{}, errNotConfigured
}
