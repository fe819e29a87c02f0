// Package flock is a lock backend for the processes of one machine: locks are
// records in the files of a directory, changed under flock(2). It needs no
// server, and is the example that docs/authoring.md leads to.
//
// A lock costs a file while it is held; what a host has left that died together
// with its plugin goes when the next one opens the directory. Nothing is flushed to the disk: a power failure ends
// the leases anyway, because they are counted in the time since boot. Network
// file systems are not for it.
package flock

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name: "flock",
	Doc:  "locks in files, for the processes of one machine",
	Keys: []driver.Key{
		{Name: "dir", Type: driver.TypeString, Required: true, Doc: "directory of the locks; made if it is not there, for this user only"},
		{Name: "prefix", Type: driver.TypeString, Doc: "hosts with different prefixes do not see each other's locks"},
	},
	Open:       open,
	Properties: properties,
}

var properties = driver.Properties{
	Name:           "flock",
	Fencing:        driver.FencingDurable,
	Scope:          driver.ScopeShared,
	TTLMin:         10 * time.Millisecond,
	TTLStep:        time.Millisecond,
	TTLMax:         24 * time.Hour,
	Durability:     "until the machine is restarted",
	Server:         "the file system",
	SurvivesPlugin: true,
}

const (
	// observeEvery is how often an observer looks, for want of a push channel.
	observeEvery = 50 * time.Millisecond
	// barFor is how long a withdrawn owner is refused.
	barFor = 2 * time.Minute
)

// backend is one host's use of a directory. It keeps nothing in memory.
type backend struct {
	dir, prefix string
	boot        string // id of this boot of the machine
	closed      atomic.Bool
}

func open(ctx context.Context, cfg driver.Config, _ *slog.Logger) (driver.Backend, error) {
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("flock: %w: %w", driver.ErrConfig, err)
	}
	b := &backend{dir: cfg["dir"], prefix: cfg["prefix"], boot: boot}
	b.sweep(ctx)
	return b, nil
}

// sweep removes the records of leases that are over and that nobody released,
// whatever their prefix.
// One that it cannot read is left for whoever asks for that lock.
func (b *backend) sweep(ctx context.Context) {
	paths, _ := filepath.Glob(filepath.Join(b.dir, recordPrefix+"*")) // the worst is to find none
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var r record
		if err != nil || json.Unmarshal(text, &r) != nil {
			continue
		}
		host := &backend{dir: b.dir, prefix: r.Prefix, boot: b.boot}
		_, _ = host.Inspect(ctx, string(r.Name)) // looking at it is what removes it
	}
}

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (token uint64, err error) {
	err = b.step(ctx, "acquire", r.Name, func(s *step) error {
		barred, err := s.barred(r.Owner)
		switch {
		case err != nil:
			return err
		case barred:
			return driver.ErrWithdrawn
		case s.Owner != "":
			return &driver.HeldError{Holder: s.holder()}
		}
		token, err = s.mint()
		s.Owner, s.Label, s.Value, s.Token, s.Ends = r.Owner, r.Label, r.Value, token, s.now+r.TTL
		return err
	})
	return token, err
}

// held is a step on the lease of r, or the refusal that it is not there.
func (b *backend) held(ctx context.Context, operation string, r driver.Request, change func(*step)) error {
	return b.step(ctx, operation, r.Name, func(s *step) error {
		if s.Owner != r.Owner || s.Token != r.Token {
			return &driver.NotHeldError{Holder: s.holder()}
		}
		change(s)
		return nil
	})
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	return b.held(ctx, "renew", r, func(s *step) { s.Ends = s.now + r.TTL })
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	if r.Token == 0 {
		return b.step(ctx, "withdraw", r.Name, func(s *step) error {
			if s.Owner == r.Owner {
				s.free()
			}
			return s.bar(r.Owner)
		})
	}
	return b.held(ctx, "release", r, func(s *step) {
		if r.Keep > 0 {
			s.Ends = min(s.Ends, s.now+r.Keep)
			return
		}
		s.free()
	})
}

func (b *backend) Inspect(ctx context.Context, name string) (h driver.Holder, err error) {
	err = b.step(ctx, "inspect", name, func(s *step) error {
		h = s.holder()
		return nil
	})
	return h, err
}

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.held(ctx, "proclaim", r, func(s *step) { s.Value = r.Value })
}

func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return driver.PollObserve(ctx, b, name, observeEvery, emit)
}

// Check takes the road of every operation, for a name that no lock has.
func (b *backend) Check(ctx context.Context) error {
	return b.step(ctx, "check", "", func(*step) error { return nil })
}

func (b *backend) Properties() driver.Properties { return properties }

func (b *backend) Close(context.Context) error {
	b.closed.Store(true)
	return nil
}
