// Package lockbench is the root of a module for distributed locks and leader
// election, with each backend in a separate process, and for the tool that
// says which backend to pick. The root has no code; these packages have.
//
// Applications:
//
//   - [github.com/lockbench/lockbench/core]: locks, elections, leases
//   - [github.com/lockbench/lockbench/core/plugin]: opens a backend by name, as
//     a process that is supervised, and that releases what a killed host held
//   - [github.com/lockbench/lockbench/core/fence]: the resource's side of a
//     fencing token, for SQL, Redis, files, HTTP and memory
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
//   - [github.com/lockbench/lockbench/plugins/memory]: one process, for tests and to read
//
// Authors of backends:
//
//   - [github.com/lockbench/lockbench/core/driver]: the contract
//   - [github.com/lockbench/lockbench/core/driver/cas]: a backend made of a store that has compare-and-set
//   - [github.com/lockbench/lockbench/core/driver/config]: keys, credentials and TLS of a backend
//   - [github.com/lockbench/lockbench/core/plugin/serve]: turns a backend into a plugin
//   - [github.com/lockbench/lockbench/core/drivertest]: the conformance suite
//
// The command is [github.com/lockbench/lockbench/cmd/lockbench]: it measures
// backends, breaks what is around them, checks that no lock was granted twice,
// and shows and breaks locks.
//
// The words are explained in docs/concepts.md of the repository.
// docs/backends.md says which backend guarantees what, docs/architecture.md
// where everything is, and DESIGN.md why it is so.
package lockbench
