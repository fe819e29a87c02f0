// Package baseline holds what a user would pick instead of a plugin: the usual
// libraries, the bare client, and our own libraries without the process, all
// in the process of lockbench. It also measures floors: what the cheapest
// possible call costs on the same path.
//
// It is the only package of the bench that imports backends and other lock
// libraries.
package baseline

import (
	"context"
	"slices"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/plugins/etcd"
	"github.com/lockbench/lockbench/plugins/mysql"
	"github.com/lockbench/lockbench/plugins/redis"
	"github.com/lockbench/lockbench/plugins/redlock"
)

// Baseline is a library that is measured beside a backend, on the same server.
type Baseline struct {
	Name    string         // in reports and results.txt
	Doc     string         // one line
	Backend string         // the backend whose server and configuration it uses
	Module  string         // Go module path, for the version in run.json
	Fencing driver.Fencing // "": that of the backend, whose library it is
	// Reference reports whether it is what the backend is compared with.
	Reference bool
	// Open connects. cfg is the checked configuration of the backend.
	Open func(ctx context.Context, cfg driver.Config) (load.Locker, error)
}

// All are the baselines in the order in which they are shown.
func All() []Baseline {
	return []Baseline{
		redislockBaseline, redsyncBaseline, rueidislockBaseline, goredisBaseline, pipelinedBaseline, inProcess(redis.Spec, under(keyPrefix+"in-process:")),
		redsyncNodesBaseline, inProcess(redlock.Spec, under(keyPrefix+"in-process:")),
		leaseRowBaseline, getLockBaseline, inProcess(mysql.Spec, under(tablePrefix+"in_process_")),
		etcdMutexBaseline, etcdElectionBaseline, inProcess(etcd.Spec, func(cfg driver.Config) string { return etcdPrefix(cfg) + "in-process/" }),
	}
}

// Prefix is what everything begins with that the baselines of a backend leave, ""
// when that is below the prefix of the backend.
func Prefix(backend string) string {
	switch backend {
	case redis.Spec.Name, redlock.Spec.Name:
		return keyPrefix
	case mysql.Spec.Name:
		return tablePrefix
	}
	return ""
}

func under(prefix string) func(driver.Config) string {
	return func(driver.Config) string { return prefix }
}

// Names lists the names of [All].
func Names() []string {
	var names []string
	for _, b := range All() {
		names = append(names, b.Name)
	}
	return names
}

// ByName finds a baseline.
func ByName(name string) (Baseline, bool) {
	i := slices.IndexFunc(All(), func(b Baseline) bool { return b.Name == name })
	if i < 0 {
		return Baseline{}, false
	}
	return All()[i], true
}

// Reference is the baseline that a backend is compared with, "" for none.
func Reference(backend string) string {
	for _, b := range All() {
		if b.Backend == backend && b.Reference {
			return b.Name
		}
	}
	return ""
}
