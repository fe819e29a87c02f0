package postgres

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name: "postgres",
	Doc:  "locks as rows of a table in PostgreSQL 14 and later",
	Keys: config.KeysOf(Options{}),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o := optionsOf(cfg)
		o.Logger = log
		return open(o)
	},
	Properties: properties,
	Commands: []driver.Command{{
		Name: "ddl",
		Doc:  "print the statements that create the schema and grant the rights",
		Run: func(_ context.Context, cfg driver.Config, stdout io.Writer) error {
			return printDDL(cfg, stdout)
		},
	}},
}

// properties are what the backend promises before it has reached the server. Fencing becomes
// strict if the server acknowledges a commit only when the commit is on disk.
var properties = driver.Properties{
	Name:           "postgres",
	Fencing:        driver.FencingDurable,
	Scope:          driver.ScopeShared,
	TTLMin:         20 * time.Millisecond,
	TTLStep:        time.Millisecond,
	TTLMax:         31 * 24 * time.Hour,
	FIFO:           true,
	TimedTokens:    true,
	Durability:     "unknown",
	SurvivesPlugin: true,
	FirstSpan:      kit.FirstSpan,
	Capabilities:   []driver.Capability{driver.CapWaiter, driver.CapObserver, driver.CapBatcher, driver.CapStarter, driver.CapAdmin},
}

func optionsOf(cfg driver.Config) (o Options) {
	config.Decode(cfg, &o)
	return o
}

// Properties returns what the backend promises, and the server's version and durability if known.
func (b *Backend) Properties() driver.Properties {
	p := properties
	p.Capabilities = slices.Clone(p.Capabilities)
	if b.opts.ListenAddress == noListening {
		p.FirstSpan = 0
	}
	if s := b.server.Load(); s != nil {
		p.Server, p.Durability = "PostgreSQL "+s.version, s.durability()
		if s.durable() {
			p.Fencing = driver.FencingStrict
		}
	}
	return p
}
