// Package baseline has what a user could choose instead of a plugin: the usual lock libraries, the
// store's bare client, and our backends without a plugin process. All of these run in the process
// that takes the locks.
//
// Only this package of bench imports backends and third-party lock libraries. Tests may do so, too.
package baseline

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd"
	"github.com/lockbench/lockbench/plugins/mysql"
	"github.com/lockbench/lockbench/plugins/postgres"
	"github.com/lockbench/lockbench/plugins/redis"
	"github.com/lockbench/lockbench/plugins/redlock"
)

// Baseline is a library that a run measures on the same server as a backend, for comparison.
type Baseline struct {
	Name    string // as reports and results.txt show it
	Doc     string // one line
	Backend string // the backend whose server and configuration the baseline uses
	Module  string // Go module path, for the version in run.json
	// NoTokens is set if the library gives no fencing token with a grant.
	NoTokens bool
	// Renews reports whether the library renews leases by itself. Frees reports whether a lease ends
	// when the process of its holder crashes.
	Renews, Frees bool
	// Reference is set if reports compare the backend with this baseline.
	Reference bool
	// Open connects to the server. cfg is the configuration of the backend, already checked.
	Open func(ctx context.Context, cfg driver.Config) (load.Locker, error)
}

// Without returns the features that the baseline's library lacks and plugins have.
func (b Baseline) Without() (lacks []string) {
	for _, one := range []struct {
		has  bool
		what string
	}{{!b.NoTokens, "token"}, {b.Renews, "renewal"}, {b.Frees, "release at a crash"}} {
		if !one.has {
			lacks = append(lacks, one.what)
		}
	}
	return lacks
}

// All returns the baselines in the order in which reports show them.
func All() []Baseline {
	return []Baseline{
		redislockBaseline, redsyncBaseline, rueidislockBaseline, goredisBaseline, pipelinedBaseline, inProcess(redis.Spec),
		redsyncNodesBaseline, inProcess(redlock.Spec),
		leaseRowBaseline, getLockBaseline, inProcess(mysql.Spec),
		pgLeaseRowBaseline, pgAdvisoryBaseline, pgAdvisoryTxBaseline, inProcess(postgres.Spec),
		etcdMutexBaseline, inProcess(etcd.Spec),
	}
}

// Prefix returns the prefix of all keys and tables that a backend's baselines create. It is "" if
// these keys are below the backend's own prefix.
func Prefix(backend string) string {
	switch backend {
	case redis.Spec.Name, redlock.Spec.Name:
		return keyPrefix
	case mysql.Spec.Name, postgres.Spec.Name:
		return tablePrefix
	}
	return ""
}

func ByName(name string) (Baseline, bool) {
	i := slices.IndexFunc(All(), func(b Baseline) bool { return b.Name == name })
	if i < 0 {
		return Baseline{}, false
	}
	return All()[i], true
}

// Reference returns the name of the baseline that reports compare a backend with, or "" for none.
func Reference(backend string) string {
	for _, b := range All() {
		if b.Backend == backend && b.Reference {
			return b.Name
		}
	}
	return ""
}

// keyPrefix keeps the keys of baselines apart from the keys of backends. tablePrefix does the same
// for SQL tables.
const (
	keyPrefix   = "lockbench:baseline:"
	tablePrefix = "lockbench_baseline_"
)

var discard = slog.New(slog.DiscardHandler)

// inProcess returns a baseline that is our library for a backend, without the plugin process.
func inProcess(spec driver.Spec) Baseline {
	return Baseline{
		Name:    spec.Name + "-in-process",
		Doc:     "our " + spec.Name + " library without the plugin process",
		Backend: spec.Name,
		Renews:  true,
		Open: func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
			own := maps.Clone(cfg)
			own["prefix"] = cmp.Or(Prefix(spec.Name), etcdPrefix(cfg)) + "in_process_"
			b, err := driver.Open(ctx, spec, own, discard)
			if err != nil {
				return nil, err
			}
			return load.NewCore(b, &core.Options{Logger: discard}), nil
		},
	}
}

// locks prepares the lock called name for one caller, as the Lock method of [load.Locker] does.
type locks func(name string, ttl time.Duration) (load.Lock, error)

// locker is a [load.Locker]. Its Close releases no locks, because callers release their own.
type locker struct {
	lock  locks
	close func() error
}

func (l locker) Lock(name string, ttl time.Duration) (load.Lock, error) { return l.lock(name, ttl) }

func (l locker) Close(context.Context) error { return l.close() }

// on returns an Open function that connects a client with dial. The function of makes the locks.
func on[C io.Closer](dial func(driver.Config) (C, error), of func(context.Context, C) (locks, error)) func(context.Context, driver.Config) (load.Locker, error) {
	return func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := dial(cfg)
		if err != nil {
			return nil, err
		}
		prepare, err := of(ctx, c)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return locker{prepare, c.Close}, nil
	}
}

// advisory completes the baseline of a lock that has no TTL and ends with its connection.
func advisory(b Baseline) Baseline {
	b.Doc += " for each lease; no TTL, no token, nothing written"
	b.NoTokens, b.Renews, b.Frees = true, true, true
	return b
}

type acquire func(context.Context) (load.Lease, error)

func (a acquire) Acquire(ctx context.Context) (load.Lease, error) { return a(ctx) }

type lease struct {
	token          uint64
	renew, release func(context.Context) error
}

func (l lease) Token() uint64 { return l.token }

func (l lease) Renew(ctx context.Context) error { return l.renew(ctx) }

func (l lease) Release(ctx context.Context) error { return l.release(ctx) }

// untimed is a lease that the library renews, or that has no TTL; see [load.Untimed].
type untimed struct{ lease }

func (untimed) Untimed() {}
