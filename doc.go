// Package lockbench is the root of a module for distributed locks and leader
// election. Each backend runs in a separate process. The command lockbench helps
// to choose a backend. This package has no code. The main packages are:
//
// Applications:
//
//   - [github.com/lockbench/lockbench/core]: locks, elections, leases
//   - [github.com/lockbench/lockbench/core/plugin]: opens a backend by name, as a supervised
//     process that releases its host's locks when the host is killed
//   - [github.com/lockbench/lockbench/core/fence]: checks fencing tokens, for SQL, Redis, files,
//     HTTP and memory
//   - [github.com/lockbench/lockbench/core/otel]: metrics and spans
//
// A program begins with plugin.Open and core.New:
//
//	backend, err := plugin.Open(ctx, "redis", &plugin.Options{Config: map[string]string{"address": "localhost:6379"}})
//	...
//	client := core.New(backend, nil)
//	defer client.Close(ctx)
//	lock, err := client.Lock("jobs/refresh", nil)
//	...
//	err = lock.Do(ctx, func(ctx context.Context, lease *core.Lease) error { ... })
//
// Backends:
//
//   - [github.com/lockbench/lockbench/plugins/redis]: one Redis, Sentinel or Cluster
//   - [github.com/lockbench/lockbench/plugins/redlock]: a majority of independent Redis servers
//   - [github.com/lockbench/lockbench/plugins/mysql]: MySQL and MariaDB
//   - [github.com/lockbench/lockbench/plugins/postgres]: PostgreSQL
//   - [github.com/lockbench/lockbench/plugins/etcd]: etcd
//   - [github.com/lockbench/lockbench/plugins/memory]: one process, for tests and as an example
//
// Authors of backends:
//
//   - [github.com/lockbench/lockbench/core/driver]: the contract
//   - [github.com/lockbench/lockbench/core/driver/cas]: makes a backend from a store with compare-and-set
//   - [github.com/lockbench/lockbench/core/driver/config]: a backend's keys, credentials and TLS
//   - [github.com/lockbench/lockbench/core/plugin/serve]: turns a backend into a plugin
//   - [github.com/lockbench/lockbench/core/drivertest]: the conformance suite
//
// The command is [github.com/lockbench/lockbench/cmd/lockbench]. It measures
// backends, tests them under faults, checks that no lock was granted twice,
// and shows and breaks locks.
//
// In the repository, docs/concepts.md explains the terms, docs/backends.md says what each backend
// guarantees, docs/architecture.md says where everything is, and DESIGN.md gives the reasons for
// the design.
package lockbench
