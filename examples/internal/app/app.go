// Package app has what the examples share: flags that choose a backend,
// one or more instances of the example in a process, and the metrics page.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/otel"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/status"
	"github.com/lockbench/lockbench/plugins/memory"
)

// Flags are the command-line flags that choose the backend and the number of instances.
type Flags struct {
	backend, address, config, dir string
	label                         string
	instances                     int
	metrics                       string
}

func (f *Flags) Add(fs *flag.FlagSet) {
	fs.StringVar(&f.backend, "backend", "memory", "redis, redlock, mysql, postgres, etcd, or memory within one process")
	fs.StringVar(&f.address, "address", "", "of the store; one with a password belongs into --config")
	fs.StringVar(&f.config, "config", "", "file with the backend's configuration, a line key=value for each")
	fs.StringVar(&f.dir, "plugin-dir", "", "where the plugins are, besides beside this program and on the PATH")
	fs.StringVar(&f.label, "label", "", "who holds, for people (default host name and process id)")
	fs.IntVar(&f.instances, "instances", 1, "how many instances to run in this process")
	fs.StringVar(&f.metrics, "metrics", "", "serve /metrics for Prometheus, /ready for a probe and /leader as JSON on this address, such as 127.0.0.1:9464")
}

// Instance is one running copy of an example. The copies in a process share only the store.
type Instance struct {
	Number int    // counted from 1
	Name   string // for people: the label
	Client *core.Client
	// Recorder records the metrics of this process. It is nil without the flag --metrics.
	Recorder *otel.Recorder
	status   *status.Handler
}

// Follow shows the leader of the election e on the page /leader. As long as
// it sees a leader, the page /ready counts this instance as ready, even if
// the store is too busy to answer a check. Follow returns when ctx ends.
func (i Instance) Follow(ctx context.Context, e *core.Elector) { i.status.Follow(ctx, i.Client, e) }

// Main calls the function run for each instance, and waits until all calls return. SIGINT or
// SIGTERM ends the ctx of the calls. The process ends with status 1 after any error except
// context.Canceled, for example if a client cannot be opened.
func (f *Flags) Main(run func(ctx context.Context, i Instance) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := f.Run(ctx, run)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// Run opens a client for each instance, runs all instances at the same time, and closes the
// clients, which releases their locks. If an instance fails, Run ends the other instances and
// returns the first error.
func (f *Flags) Run(ctx context.Context, run func(ctx context.Context, i Instance) error) error {
	if f.instances < 1 {
		return fmt.Errorf("--instances %d is not at least 1", f.instances)
	}
	open, err := f.opener()
	if err != nil {
		return err
	}
	var state status.Handler
	recorder, stop, err := serveMetrics(f.metrics, &state)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for n := 1; n <= f.instances; n++ {
		b, err := open(ctx)
		if err != nil {
			cancel(err)
			break
		}
		i := Instance{Number: n, Name: f.name(n), Recorder: recorder, status: &state}
		opts := &core.Options{Label: i.Name}
		if recorder != nil {
			opts.OnEvent = recorder.OnEvent
		}
		i.Client = core.New(b, opts)
		state.Add(i.Client)
		work.Go(func() {
			if err := run(ctx, i); err != nil {
				cancel(fmt.Errorf("%s: %w", i.Name, err))
			}
			closing, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer done()
			if err := i.Client.Close(closing); err != nil {
				cancel(err)
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

func (f *Flags) name(n int) string {
	name := f.label
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if f.instances > 1 {
		name = fmt.Sprintf("%s/%d", name, n)
	}
	return name
}

// opener returns a function that opens a backend for one instance. The backend is a separate
// plugin process or, with --backend memory, a connection to the one store in this process.
func (f *Flags) opener() (func(context.Context) (driver.Backend, error), error) {
	cfg, err := f.configuration()
	if err != nil {
		return nil, err
	}
	if f.backend == "memory" {
		if len(cfg) > 0 {
			return nil, errors.New("the memory backend has no configuration")
		}
		store := memory.NewStore()
		return func(context.Context) (driver.Backend, error) { return store.Open(), nil }, nil
	}
	opts := &plugin.Options{Config: cfg}
	if f.dir != "" {
		opts.Dirs = []string{f.dir}
	}
	return func(ctx context.Context) (driver.Backend, error) { return plugin.Open(ctx, f.backend, opts) }, nil
}

func (f *Flags) configuration() (driver.Config, error) {
	cfg := driver.Config{}
	if f.config != "" {
		file, err := os.Open(f.config)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if cfg, err = driver.ReadConfig(file); err != nil {
			return nil, fmt.Errorf("%s: %w", f.config, err)
		}
	}
	if f.address != "" {
		cfg["address"] = f.address
	}
	return cfg, nil
}
