package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/driver"
)

// serverFlags say where plugins and servers are.
type serverFlags struct {
	targets, config []string
	pluginDirs      []string
}

func (f *serverFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.targets, "target", nil, "use your server: `BACKEND=ADDRESS`, BACKEND=@FILE or BACKEND=env:VARIABLE")
	fl.StringArrayVar(&f.config, "config", nil, "configure a backend: `BACKEND.KEY=VALUE` (see lockbench plugins describe BACKEND)")
	fl.StringArrayVar(&f.pluginDirs, "plugin-dir", nil, "look for plugins in `DIR` first, then beside lockbench and on the PATH")
}

// parse reads targets and configuration. A password that can be seen in the
// list of processes is refused in a target, and warned of elsewhere.
func (f *serverFlags) parse(stderr io.Writer) (targets map[string]string, config map[string]driver.Config, err error) {
	targets, config = map[string]string{}, map[string]driver.Config{}
	for _, t := range f.targets {
		backend, address, ok := strings.Cut(t, "=")
		if !ok || backend == "" || address == "" {
			return nil, nil, hinted(usagef("--target %q is not of the form BACKEND=ADDRESS", bench.ShowAddress(t)), "--target redis=127.0.0.1:6379, redis=@FILE or redis=env:VARIABLE")
		}
		if targets[backend], err = readTarget(backend, address); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range f.config {
		name, value, ok := strings.Cut(c, "=")
		backend, key, dotted := strings.Cut(name, ".")
		if !ok || !dotted || backend == "" || key == "" {
			return nil, nil, hinted(usagef("--config %q is not of the form BACKEND.KEY=VALUE", name), "--config redis.prefix=bench:")
		}
		if strings.Contains(key, "password") && value != "" {
			fmt.Fprintf(stderr, "warning: %s.%s can be seen in the list of processes\nhint: --target %s=env:VARIABLE with a URL keeps it out\n", backend, key, backend)
		}
		if config[backend] == nil {
			config[backend] = driver.Config{}
		}
		config[backend][key] = value
	}
	return targets, config, nil
}

// configOf is the configuration of one backend; the flags may name no other.
func (f *serverFlags) configOf(backend string, stderr io.Writer) (driver.Config, error) {
	targets, config, err := f.parse(stderr)
	if err != nil {
		return nil, err
	}
	for name := range targets {
		if name != backend {
			return nil, usagef("a target for %q, but the backend is %q", name, backend)
		}
	}
	for name := range config {
		if name != backend {
			return nil, usagef("configuration for %q, but the backend is %q", name, backend)
		}
	}
	cfg := driver.Config{}
	maps.Copy(cfg, config[backend])
	if t := targets[backend]; t != "" {
		cfg["address"] = t
	}
	return cfg, nil
}

func readTarget(backend, address string) (string, error) {
	if path, ok := strings.CutPrefix(address, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", usagef("--target %s=@FILE: %v", backend, err)
		}
		if address = strings.TrimSpace(string(b)); address == "" {
			return "", usagef("--target %s: %s is empty", backend, path)
		}
		return address, nil
	}
	if name, ok := strings.CutPrefix(address, "env:"); ok {
		if address = strings.TrimSpace(os.Getenv(name)); address == "" {
			return "", usagef("--target %s: the variable %s is not set", backend, name)
		}
		return address, nil
	}
	if bench.HasSecret(address) {
		return "", hinted(usagef("--target %s=%s: a password on the command line can be seen by everybody on this machine", backend, bench.ShowAddress(address)),
			fmt.Sprintf("put the address into a file or a variable: --target %s=@FILE or --target %s=env:VARIABLE", backend, backend))
	}
	return address, nil
}
