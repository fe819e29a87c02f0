// Command paced is the memory plugin with slow operations. Each operation takes at least the time
// that the linker sets, for example 10 ms with -ldflags "-X main.pace=10ms".
package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/memory"
)

var pace = "1ms"

func main() {
	d, err := time.ParseDuration(pace)
	if err != nil {
		panic(err)
	}
	spec := memory.Spec
	spec.Properties.Capabilities = nil
	open := spec.Open
	spec.Open = func(ctx context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		b, err := open(ctx, cfg, log)
		return backend{b, d}, err
	}
	serve.Main(spec)
}

type backend struct {
	driver.Backend
	pace time.Duration
}

func (b backend) Properties() driver.Properties {
	p := b.Backend.Properties()
	p.Capabilities = nil
	return p
}

func (b backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	time.Sleep(b.pace)
	return b.Backend.TryAcquire(ctx, r)
}

func (b backend) Renew(ctx context.Context, r driver.Request) error {
	time.Sleep(b.pace)
	return b.Backend.Renew(ctx, r)
}

func (b backend) Release(ctx context.Context, r driver.Request) error {
	time.Sleep(b.pace)
	return b.Backend.Release(ctx, r)
}

func (b backend) Withdraw(ctx context.Context, name, owner string) error {
	time.Sleep(b.pace)
	return b.Backend.Withdraw(ctx, name, owner)
}
