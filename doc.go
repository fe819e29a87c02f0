// Package lockbench is the root of a module for distributed locks and leader
// election. Each backend runs in a separate process. The command lockbench helps
// to choose a backend. This package has no code. The main packages are:
//
// Applications:
//
//   - [github.com/lockbench/lockbench/core]: has locks, elections and leases
//   - [github.com/lockbench/lockbench/core/plugin]: opens a backend by name, as a supervised
//     process that releases the application's locks when the application is killed
//   - [github.com/lockbench/lockbench/core/fence]: checks fencing tokens, for SQL, Redis, files,
//     HTTP and memory
//   - [github.com/lockbench/lockbench/core/otel]: records metrics and spans
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
//   - [github.com/lockbench/lockbench/plugins/redis]: uses one Redis, Sentinel or Cluster
//   - [github.com/lockbench/lockbench/plugins/redlock]: uses a majority of independent Redis nodes
//   - [github.com/lockbench/lockbench/plugins/mysql]: uses MySQL or MariaDB
//   - [github.com/lockbench/lockbench/plugins/postgres]: uses PostgreSQL
//   - [github.com/lockbench/lockbench/plugins/etcd]: uses etcd
//   - [github.com/lockbench/lockbench/plugins/memory]: works in one process, for tests
//
// Authors of backends:
//
//   - [github.com/lockbench/lockbench/core/driver]: defines what a backend must do
//   - [github.com/lockbench/lockbench/core/driver/cas]: makes a backend by compare-and-set
//   - [github.com/lockbench/lockbench/core/driver/config]: reads a backend's configuration
//   - [github.com/lockbench/lockbench/core/plugin/serve]: turns a backend into a plugin
//   - [github.com/lockbench/lockbench/core/drivertest]: tests whether a backend obeys core/driver
//
// The command is [github.com/lockbench/lockbench/cmd/lockbench]. It measures backends and tests
// them under faults. It checks that two hosts never hold the same lock at once. It lists held
// locks, and can take a lock from its holder.
//
// In the repository, docs/concepts.md explains the terms, docs/backends.md says what each backend
// guarantees, docs/architecture.md says where each part is, and DESIGN.md gives the reasons for
// the design.
package lockbench
